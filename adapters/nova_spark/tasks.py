"""What runs in Spark's tasks. It travels by value: hosts need pyarrow, but not Nova."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

Batches = Iterator["pa.RecordBatch"]
Step = Callable[[Batches], Batches]
# Spark's page on an application keeps as many stages.
KEPT = 1000


class StagesSeen(AccumulatorParam[dict[str, set[int]]]):
    """Which of Spark's stages a named step has run in: the last `KEPT` of each."""

    def zero(self, value: dict[str, set[int]]) -> dict[str, set[int]]:
        """Nothing seen."""
        return {}

    def addInPlace(  # noqa: N802  (Spark's name)
        self, value1: dict[str, set[int]], value2: dict[str, set[int]]
    ) -> dict[str, set[int]]:
        """The union, in the first."""
        for name, stages in value2.items():
            known = value1.setdefault(name, set())
            known |= stages
            if len(known) > KEPT:
                known -= set(sorted(known)[:-KEPT])
        return value1


def seen_in(step: Step, name: str, seen: Accumulator[dict[str, set[int]]]) -> Step:
    """A step that also tells in which stages it runs."""

    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None:
            seen.add({name: {context.stageId()}})
        return step(batches)

    return run


def same(batches: Batches) -> Batches:
    """What comes, unchanged."""
    yield from batches
