"""Compares where the operators of a plan run with where they should, for all engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

MISSING, STARTING, RUNNING, FINISHED = "MISSING", "STARTING", "RUNNING", "FINISHED"


@dataclass(frozen=True)
class Row:
    """One running part of one operator.

    Attributes:
        operator: its name in the plan's flow; the engine's name for what the flow does not
            know.
        node: where the flow has it; None for what the flow does not know.
        actual: the node it runs on, or the engine's name of the host where that is no node's; None
            while it has not been deployed, or for what the job lacks.
        status: in the engine's words; ``STARTING`` where it has been assigned but not reported,
            ``MISSING`` for what the job lacks.
    """

    operator: str
    node: str | None
    actual: str | None
    status: str

    @property
    def ok(self) -> bool:
        """Whether it runs on its node."""
        in_place = self.node is not None and self.actual == self.node
        return in_place and self.status not in (MISSING, STARTING)


@dataclass(frozen=True)
class Verification:
    """A job compared with its flow.

    Attributes:
        rows: in the order of the flow; what it does not know comes last.
        note: what else the engine says of the placement.
        state: of the job, in the engine's words; empty where the engine does not tell.
    """

    rows: tuple[Row, ...]
    note: str = ""
    state: str = ""

    @property
    def runs(self) -> bool:
        """Whether the job runs, or has finished as it should."""
        return self.state in (RUNNING, FINISHED, "")

    @property
    def misplaced(self) -> tuple[Row, ...]:
        """Operators that do not run on their node, or are not deployed yet."""
        known = (row for row in self.rows if row.node is not None and row.status != MISSING)
        return tuple(row for row in known if row.actual != row.node)

    @property
    def missing(self) -> tuple[Row, ...]:
        """Operators of the flow that the job lacks, or that no host has reported yet."""
        return tuple(row for row in self.rows if row.status in (MISSING, STARTING))

    @property
    def unexpected(self) -> tuple[Row, ...]:
        """Parts of the job that hold no operator of the flow."""
        return tuple(row for row in self.rows if row.node is None)

    @property
    def placed(self) -> bool:
        """Whether everything, and nothing else, is (or was, where the job has ended) in place."""
        return all(row.ok for row in self.rows)

    @property
    def ok(self) -> bool:
        """Whether the job runs, and everything, and nothing else, is where it should be."""
        return self.runs and self.placed

    def summary(self) -> str:
        """What it comes to, in a line."""
        if not self.runs:
            return f"the job is {self.state}: what is listed is where it was"
        return "every operator is where the plan has it" if self.ok else "not as planned"

    def to_plain(self) -> dict[str, Any]:
        """As a JSON document: ``ok``, the job's state and the note where there are, the rows."""
        told = {"state": self.state, "note": self.note}
        more = {name: text for name, text in told.items() if text}
        return {"ok": self.ok, **more, "rows": [asdict(row) for row in self.rows]}


def compare(
    nodes: Mapping[str, str],
    parts: Iterable[tuple[str, str | None, str]],
    note: str = "",
    state: str = "",
) -> Verification:
    """Compare where parts of a job run with where they should.

    Args:
        nodes: node of every operator of the flow.
        parts: operator (or the engine's name of something else), actual place and status of
            everything that runs.
        note: what else the engine says.
        state: of the job, in the engine's words.
    """
    known: dict[str, list[Row]] = {name: [] for name in nodes}
    surplus: list[Row] = []
    for name, actual, status in parts:
        known.get(name, surplus).append(Row(name, nodes.get(name), actual, status))
    rows = [
        row
        for name, matches in known.items()
        for row in matches or [Row(name, nodes[name], None, MISSING)]
    ]
    return Verification((*rows, *surplus), note, state)
