"""What ``nes-cli dump`` says of a query: its operators, and the workers that they run on.

It draws the whole plan, and then the part of each worker, as trees of one line a level. Labels of
more than 60 characters are cut there. The operators of a level are in the order of those above
them, so that their number of inputs says whose they are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nova_core.errors import NovaError
from nova_engines.flow import AGGREGATE, JOIN, PROJECT, RELAY, SINK, SOURCE
from nova_engines.verification import MISSING, RUNNING, Verification, compare
from nova_nebulastream.queries import UNION, Query, Step

OPTIMIZED, DECOMPOSED = "== Optimized Global Plan ==", "== Decomposed Plans =="
_WORKER = re.compile(r"-- \d+ plan\(s\) on (\S+) --")
_NUMBERED = re.compile(r"\d+:")
_KINDS = {
    "SINK": SINK,
    "SOURCE": SOURCE,
    "Join": JOIN,
    "WINDOW AGG": AGGREGATE,
    "UnionWith": UNION,
    "SELECTION": "filter",
    "PROJECTION": PROJECT,
    "WATERMARK_ASSIGNER": "watermark",
}
_BEGIN = re.compile("|".join(map(re.escape, _KINDS)))
# An operator's label ends before another one begins.
_NEXT = re.compile(rf"(?<=\S)\s+(?={_BEGIN.pattern})")
NETWORK = ("SINK(NETWORK)", "SOURCE(NETWORK)")


class DumpError(NovaError):
    """A dump that has not the form that this module knows."""


@dataclass(frozen=True)
class Node:
    """An operator of NebulaStream.

    Attributes:
        label: as the dump has it.
        below: what it receives from.
    """

    label: str
    below: tuple[Node, ...] = ()

    @property
    def kind(self) -> str:
        """One of the values of `_KINDS`."""
        begin = _BEGIN.match(self.label)
        assert begin is not None  # labels are found by it
        return _KINDS[begin[0]]

    def walk(self) -> Iterator[Node]:
        """All operators, this one first."""
        yield self
        for one in self.below:
            yield from one.walk()


@dataclass(frozen=True)
class Explained:
    """A dump.

    Attributes:
        plan: of the whole query, as it is placed.
        parts: of each worker, its plans.
    """

    plan: Node
    parts: Mapping[str, Sequence[Node]]


def explained(text: str) -> Explained:
    """Read what ``nes-cli dump`` has printed of one query.

    Raises:
        DumpError: naming the line that is not understood.
    """
    if OPTIMIZED not in text or DECOMPOSED not in text:
        raise DumpError(f"nes-cli dump: expected {OPTIMIZED!r} and {DECOMPOSED!r}")
    whole, _, rest = text.split(OPTIMIZED, 1)[1].partition(DECOMPOSED)
    parts: dict[str, list[Node]] = {}
    worker, drawn = "", list[str]()

    def close() -> None:
        if any(line.strip() for line in drawn):
            parts[worker].append(_tree(drawn))
        drawn.clear()

    for line in rest.splitlines():
        found = _WORKER.match(line)
        if found:
            if worker:
                close()
            worker = found[1]
            parts[worker] = []
        elif _NUMBERED.fullmatch(line.strip()):
            close()
        elif worker:
            drawn.append(line)
    if worker:
        close()
    if not parts:
        raise DumpError("nes-cli dump: no worker has a plan")
    return Explained(_tree(whole.splitlines()), parts)


def _tree(lines: Sequence[str]) -> Node:
    """A tree from its drawing: levels, with lines of branches between them."""
    drawn = (line.strip() for line in lines if _BEGIN.search(line))
    levels = [[label.strip() for label in _NEXT.split(line)] for line in drawn]
    if not levels or len(levels[0]) != 1:
        raise DumpError(f"nes-cli dump: no plan in {' / '.join(lines)[:200]!r}")
    bad = [label for level in levels for label in level if not _BEGIN.match(label)]
    if bad:
        raise DumpError(f"nes-cli dump: unknown operator {bad[0]!r}")
    below: list[Node] = []
    for number in range(len(levels) - 1, -1, -1):
        rest = list(below)
        unions = [label for label in levels[number] if label.startswith("UnionWith")]
        known = sum(_inputs(label) for label in levels[number] if label not in unions)
        share, more = divmod(len(below) - known, len(unions)) if unions else (0, len(below) - known)
        if more or share < 0:
            raise DumpError(f"nes-cli dump: level {number + 1}: {len(below)} operators below it")
        nodes = []
        for label in levels[number]:
            count = share if label.startswith("UnionWith") else _inputs(label)
            nodes.append(Node(label, tuple(rest[:count])))
            del rest[:count]
        below = nodes
    return below[0]


def _inputs(label: str) -> int:
    if label.startswith("SOURCE"):
        return 0
    return 2 if label.startswith("Join") else 1


# --- where the plan has them -------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """An operator of NebulaStream, and where the plan has it.

    Attributes:
        node: of NebulaStream.
        at: name of the host.
        names: what of the flow it is; nothing of what NebulaStream has added.
    """

    node: Node
    at: str
    names: tuple[str, ...]


def expected(query: Query, plan: Node) -> list[Placed]:
    """Every operator of a query's plan with its planned host.

    What the optimizer added or moved between two operators with a place of their own runs where
    its input is produced.

    Raises:
        DumpError: where the plan is not that of the query.
    """
    found: list[Placed] = []

    def down(node: Node, step: Step) -> None:
        passed = []
        while node.kind != step.kind:
            if node.kind in (SINK, SOURCE, JOIN, AGGREGATE, UNION):
                raise DumpError(
                    f"{query.result}: {node.label} where the query has a {step.kind} ({step.name})"
                )
            passed.append(node)
            (node,) = node.below
        for one in passed:
            names = [name for kind, name, _ in step.passes if _is(one.kind, kind)]
            found.append(Placed(one, step.node, tuple(names)))
        found.append(Placed(node, step.node, (step.name,) if step.name else ()))
        below = node.below if step.kind != UNION else _united(node, found, step.node)
        if len(below) != len(step.below):
            raise DumpError(
                f"{query.result}: {node.label} has {len(below)} inputs, not {len(step.below)}"
            )
        for one, under in zip(below, step.below, strict=True):
            down(one, under)

    down(plan, query.top)
    return found


def _is(kind: str, flow_kind: str) -> bool:
    """Whether an operator of NebulaStream does what one of a flow does."""
    return kind == PROJECT if flow_kind == PROJECT else kind == "filter" and flow_kind != RELAY


def _united(node: Node, found: list[Placed], at: str) -> tuple[Node, ...]:
    """The inputs of a union of two, one of which may be such a union again."""
    inputs: list[Node] = []
    for one in node.below:
        if one.kind == UNION:
            found.append(Placed(one, at, ()))
            inputs += _united(one, found, at)
        else:
            inputs.append(one)
    return tuple(inputs)


def rooms(query: Query, dump: Explained) -> dict[str, int]:
    """How many operators run on each node that a query uses, other than sources and sinks.

    A worker with just that room takes nothing else, so that all are where the plan has them.
    """
    counts = dict.fromkeys(query.nodes, 0)
    for one in expected(query, dump.plan):
        if one.node.kind not in (SOURCE, SINK):
            counts[one.at] += 1
    return counts


def verify(query: Query, dump: Explained, hosts: Mapping[str, str]) -> Verification:
    """Compare where a dump has the operators of a query with the plan.

    Args:
        query: as planned.
        dump: of it.
        hosts: node of every worker (``host:port``).
    """
    actual: dict[str, Counter[str]] = defaultdict(Counter)
    relays: Counter[str] = Counter()
    for worker, plans in dump.parts.items():
        for plan in plans:
            labels = [one.label for one in plan.walk()]
            relays[hosts.get(worker, worker)] += all(label in NETWORK for label in labels)
            for label in labels:
                actual[label][hosts.get(worker, worker)] += 1
    nodes: dict[str, str] = {}
    parts: list[tuple[str, str | None, str]] = []
    for one in expected(query, dump.plan):
        there = actual[one.node.label]
        at = one.at if there[one.at] > 0 else next(iter(+there), None)
        if at is not None:
            there[at] -= 1
        # Of what the optimizer has added, only what is elsewhere is of interest.
        added = () if at == one.at else (f"{one.node.label} of {query.result}",)
        for name in one.names or added:
            nodes[name] = one.at
            parts.append((name, at, RUNNING if at else MISSING))
    within = [passed for step in query.top.walk() for passed in step.passes]
    for _, name, node in (one for one in within if one[0] == RELAY):
        nodes[name] = node
        if relays[node]:
            relays[node] -= 1
            parts.append((name, node, RUNNING))
    gone = sorted({name for kind, name, _ in within if kind != RELAY} - nodes.keys())
    note = f"NebulaStream has made these part of others: {', '.join(gone)}" if gone else ""
    return compare(nodes, parts, note)
