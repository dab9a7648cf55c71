"""A plan of whole queries as the simulator runs it: stages on hosts, and links between them.

A stage is a source, an instance of the plan or a sink, with the filters and projections that run
with it, as engines run them (`nova_engines.flow_of_plan`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from nova_core.errors import NovaError
from nova_core.model.queries import Aggregate, Join, LogicalOperator, Project, inputs_of
from nova_research.costream.learned.graph import Hosts
from nova_research.costream.simulator.kernels.simulation import (
    AGGREGATE,
    CHANNEL,
    HOST,
    JOIN,
    LINK,
    PASS,
    SINK,
    SOURCE,
    STAGE,
    TASK,
    Network,
)

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Bools, Floats, Ints
    from nova_research.costream.simulator.kernels.simulation import Records

FIELD_BYTES = 9
"""Size of a number on the wire; also the assumed mean of a text."""

READING_BYTES, RESULT_BYTES = 40, 64
"""Bytes sent with the fields of a reading, and of a result, which refers to two readings."""


@dataclass(frozen=True, eq=False)
class Stages:
    """A plan as the simulator needs it.

    Attributes:
        network: hosts, stages and links.
        operator: (s,) number of each stage's operator in the plan's graph.
        feeds: (s,) whether it emits partial results to another instance of its operator.
        sinks: stage of each query's sink, by the query's id.
    """

    network: Network
    operator: Ints
    feeds: Bools
    sinks: dict[str, int]

    def upstream(self, query: str) -> Bools:
        """(s,) whether stages belong to a query: its sink, and all that its results come from."""
        inside = np.zeros(len(self.operator), bool)
        inside[self.sinks[query]] = True
        # Links are in order of producers, which come before their consumers.
        for producer, consumer in zip(
            self.network.link["producer"][::-1].tolist(),
            self.network.link["consumer"][::-1].tolist(),
            strict=True,
        ):
            inside[producer] |= inside[consumer]
        return inside


def stages_of(plan: Plan) -> Stages:
    """The stages of a plan.

    Raises:
        NovaError: for a join without a window.
    """
    return _Builder(plan).stages()


class _Builder:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.graph = plan, plan.graph
        self.operators = list(plan.graph)
        self.logical: list[dict[str, LogicalOperator]] = [
            {one.id: one for one in query.operators} for query in plan.problem.queries
        ]
        self.width = self._widths()
        self._order()

    # --- stages ---------------------------------------------------------------------------------

    def _order(self) -> None:
        """Number the stages: by operator, combined pieces before the one that combines them."""
        plan, count = self.plan, len(self.plan.instances)
        body = self.graph.bodies[plan.instances.pair]
        feeds = plan.instances.feeds
        feeds = np.full(count, -1) if feeds is None else feeds
        pinned = np.flatnonzero(self.graph.node >= 0)
        operator: Ints = np.append(body, pinned)
        fed = np.append(feeds < 0, np.ones(len(pinned), bool))
        order = np.lexsort((fed, operator))
        self.operator, self.feeds = operator[order], ~fed[order]
        self.instance = np.append(np.arange(count), np.full(len(pinned), -1))[order]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        self.stage_of_instance = place[:count]
        self.stage_of_pinned = dict(zip(pinned.tolist(), place[count:].tolist(), strict=True))

    def stages(self) -> Stages:
        """All stages, with hosts and links."""
        plan, count = self.plan, len(self.operator)
        link = self._links()
        order = np.lexsort((link["consumer"], link["producer"]))
        link = link[order]
        producer, consumer = link["producer"], link["consumer"]
        nodes, host = np.unique(self._nodes(), return_inverse=True)
        hosts = Hosts.of(plan.problem, nodes)
        begin, end = host[producer], host[consumer]
        apart = begin != end
        received = np.bincount(consumer, minlength=count)
        link["chained"] = ~apart & (received[consumer] == 1)
        link["delay"] = np.where(apart, hosts.latency[begin, end], 0.0) / 1e3
        pairs, channel = np.unique(begin * len(nodes) + end, return_inverse=True)
        link["channel"] = np.where(apart, channel, -1)
        channels = np.zeros(len(pairs), CHANNEL)
        channels["bandwidth"] = _known(hosts.mbit.ravel(), pairs) * 1e6 / 8
        stage = np.zeros(count, STAGE)
        stage["host"] = host
        stage["steps"] = self._steps(producer, link["share"])
        stage["links"] = np.searchsorted(producer, np.arange(count))
        stage["links_end"] = np.searchsorted(producer, np.arange(count), "right")
        stage["inputs_end"] = np.cumsum(received)
        stage["inputs"] = stage["inputs_end"] - received
        thread = np.arange(count)
        for one in link[link["chained"]]:
            thread[one["consumer"]] = thread[one["producer"]]
        threads, stage["task"] = np.unique(thread, return_inverse=True)
        tasks = np.zeros(len(threads), TASK)
        tasks["host"][stage["task"]] = host
        self._fill(stage, link, plan.links.rate[order])
        machines = np.zeros(len(nodes), HOST)
        machines["cpu"] = _known(plan.problem.nodes.cpu, nodes)
        machines["memory"] = _known(plan.problem.nodes.memory, nodes)
        into = np.argsort(consumer, kind="stable")
        network = Network(stage, link, into, machines, tasks, channels)
        names = [query.id for query in plan.problem.queries]
        sinks = {
            names[self.operators[operator].query]: s
            for s, operator in enumerate(self.operator.tolist())
            if self.operators[operator].kind == "sink"
        }
        return Stages(network, self.operator, self.feeds, sinks)

    def _nodes(self) -> Ints:
        """(s,) node of each stage."""
        node = self.graph.node[self.operator]
        placed = self.instance >= 0
        node[placed] = self.plan.instances.node[self.instance[placed]]
        return node

    def _fill(self, stage: Records, link: Records, rate: Floats) -> None:
        """Fill in what stages do, by links with these rates ((l,), tuples/s)."""
        nominal = np.zeros((len(stage), 2))
        np.add.at(nominal, (link["consumer"], link["side"]), rate)
        emitted = self._emitted()
        left = self.plan.taken_share(0)
        feeds = self.plan.instances.feeds
        combining = set() if feeds is None else set(feeds.tolist())
        for s, operator in enumerate(self.operator.tolist()):
            one, row = self.operators[operator], stage[s]
            if one.kind in ("source", "sink"):
                row["kind"] = SOURCE if one.kind == "source" else SINK
                row["rate"] = one.rate
                continue
            logical = self.logical[one.query][one.logical]
            windows = _windows(logical)
            if windows is None:
                if isinstance(logical, Join):
                    raise NovaError(f"{one.id}: window: missing; a join is simulated with one")
                row["kind"], row["gain"] = PASS, emitted[s] / nominal[s].sum()
                continue
            row["size"], row["slide"] = windows
            windowed = self._kept(one.query, logical)
            mine = link["consumer"] == s
            link["kept"][mine] = np.array(windowed)[link["side"][mine]]
            if isinstance(logical, Join):
                row["kind"] = JOIN
                # Tuples of each input in a window, as the problem estimates them.
                held = nominal[s] * np.where(windowed, windows[1], windows[0])
                row["match"] = emitted[s] * windows[1] / held.prod()
                equal = logical.on is UNSET or "=" in str(logical.on)
                row["compared"] = 1 / logical.keys if equal else 1.0
            elif isinstance(logical, Aggregate):
                row["kind"] = AGGREGATE
                instance = int(self.instance[s])
                whole = instance in combining or self.feeds[s]
                row["groups"] = logical.groups * (1.0 if whole else left[instance])
                row["combines"] = instance in combining or any(
                    self.operators[above].partial for above in one.inputs
                )

    def _kept(self, query: int, operator: LogicalOperator) -> list[bool]:
        """Whether the left and the right input are results of the operator's own windows."""
        windowed = [
            self._lies_in(query, name) == _windows(operator) for name in inputs_of(operator)
        ]
        return [windowed[0], windowed[-1]]

    def _lies_in(self, query: int, name: str) -> tuple[float, float] | None:
        """The windows of an operator's results; None for readings."""
        operator = self.logical[query].get(name)
        if operator is None:
            return None
        if isinstance(operator, Join | Aggregate):
            return _windows(operator)
        return self._lies_in(query, operator.input)

    # --- links ----------------------------------------------------------------------------------

    def _emitted(self) -> Floats:
        """(s,) tuples/s that each stage emits, as the problem estimates it."""
        plan, links = self.plan, self.plan.links
        emitted = self.graph.rate[self.operator]
        sent = plan.emitted_share
        placed = self.instance >= 0
        if plan.instances.feeds is not None:
            sent = sent.copy()
            sent[plan.instances.feeds[plan.instances.feeds >= 0]] = 1.0
        emitted[placed] *= sent[self.instance[placed]]
        inner = links.logical < 0
        emitted[self.stage_of_instance[links.producer[inner]]] = links.rate[inner]
        return emitted

    def _links(self) -> Records:
        """(l,) the plan's links, in their order: stages, sides, shares and sizes."""
        links, emitted = self.plan.links, self._emitted()
        producers, consumers, _, _ = self.graph.links
        table = np.zeros(len(links.rate), LINK)
        stages = self.stage_of_instance, self.stage_of_pinned
        rows = zip(*(column.tolist() for column in links[:3]), strict=True)
        for one, (begin, end, logical) in zip(table, rows, strict=True):
            at = stages[0][begin] if begin >= 0 else stages[1][int(producers[logical])]
            one["producer"] = at
            one["consumer"] = stages[0][end] if end >= 0 else stages[1][int(consumers[logical])]
            inner = logical < 0
            one["size"] = self.width[
                int(self.operator[at]) if inner else int(self.graph.carried[logical])
            ]
        table["side"] = links.side
        table["share"] = links.rate / emitted[table["producer"]]
        table["sent"] = table["size"] * np.divide(
            self.plan.sent, links.rate, out=np.ones(len(table)), where=links.rate > 0
        )
        return table

    def _steps(self, producer: Ints, share: Floats) -> Floats:
        """(s,) steps per tuple: filters and projections it passes, and links it goes to."""
        per_root = np.zeros(len(self.operators))
        for one in self.graph.fused.tolist():
            root = int(self.graph.root[one])
            above = self.operators[self.operators[one].inputs[0]]
            per_root[root] += above.rate / self.operators[root].rate
        steps = np.where(self.feeds, 0.0, per_root[self.operator])
        return steps + np.bincount(producer, share, len(steps))

    def _widths(self) -> list[float]:
        """(o,) bytes of a tuple that each operator of the graph emits, as it is sent."""
        sources = self.plan.problem.sources
        columns = {one.id: len(one.columns) for one in self.plan.problem.streams}
        known: dict[str, float] = {}
        for row, (name, stream) in enumerate(
            zip(sources.ids.tolist(), sources.stream.tolist(), strict=True)
        ):
            size = np.nan if sources.tuple_bytes is None else float(sources.tuple_bytes[row])
            known[name] = size if size == size else FIELD_BYTES * columns.get(stream, 1)
        fields: list[float] = []
        widths: list[float] = []
        for one in self.operators:
            above = [fields[number] for number in one.inputs]
            logical = self.logical[one.query].get(one.logical) if one.logical else None
            own = sum(above) if one.kind == "join" else max(above, default=0.0)
            if one.kind == "source":
                own = known[one.id]
            elif isinstance(logical, Project) and logical.columns is not UNSET:
                own = FIELD_BYTES * len(dict(logical.columns))
            elif isinstance(logical, Aggregate) and logical.compute is not UNSET:
                grouped = 0 if logical.group_by is UNSET else len(list(logical.group_by))
                own = FIELD_BYTES * (grouped + len(dict(logical.compute)))
            fields.append(own)
            result = any(widths[number] > READING_BYTES + fields[number] for number in one.inputs)
            result = result or one.kind in ("join", "aggregate")
            widths.append(own + (RESULT_BYTES if result else READING_BYTES))
        return widths


def _windows(operator: LogicalOperator) -> tuple[float, float] | None:
    """Length and distance of an operator's windows, s; None where it has none."""
    if not isinstance(operator, Join | Aggregate) or operator.window is UNSET:
        return None
    size = float(operator.window)
    return size, size if operator.slide is UNSET else float(operator.slide)


def _known(column: Floats | None, rows: Ints) -> Floats:
    """(k,) values of rows of a column; ``inf`` where unknown."""
    if column is None:
        return np.full(len(rows), np.inf)
    return np.where(np.isnan(column[rows]), np.inf, column[rows])
