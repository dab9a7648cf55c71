"""Runs parts of any PySpark job on chosen nodes: batch or Structured Streaming, supported API only.

A stage of a job runs where one `pyspark.resource.ResourceProfile` in it says. A node's profile asks
for an executor that takes all of the node's resource (so there is one, and no other node can have
it) and for tasks that take a part of it. The profile is attached by a step that hands on what it
gets (``mapInArrow``), placed behind a source or a join with no shuffle in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_spark import names

if TYPE_CHECKING:
    from pyspark.resource import ResourceProfile
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from nova_spark.tasks import Step

# MiB; Spark refuses executors below 450, and those of 450 crash when they start.
EXECUTOR_HEAP = 512
# Tasks a node runs at once.
SLOTS = 2
READY_S = 90.0
# What a session needs for nodes to be chosen. Executors are started when a stage first asks.
SETTINGS: Mapping[str, str] = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "7d",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    # There is one executor to run a task on, so there is nothing to wait for.
    "spark.locality.wait": "0s",
    # What runs in Python is sent along with the job; without this, per session and by file.
    "spark.sql.artifact.isolation.enabled": "false",
}
# Profiles by application, node, slots and heap: two of one node would ask for its resource at once.
_PROFILES: dict[tuple[str, str, int, int], ResourceProfile] = {}
_MUST_BE = ("spark.dynamicAllocation.enabled", "spark.dynamicAllocation.minExecutors")


class PlacementError(NovaError):
    """A node that Spark cannot be made to use."""


class Placement:
    """Nodes of a cluster, as a job uses them.

    A session may have several, for jobs one after another; all with the same slots and heap.

    Args:
        spark: a session with `SETTINGS` on a cluster whose Workers offer their nodes' resources
            (`nova_spark.configuration`).
        slots: tasks a node runs at once: what the Workers offer.
        heap: MiB of an executor's heap, for all nodes or by name.

    Raises:
        PlacementError: for a session without those settings.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        slots: int = SLOTS,
        heap: int | Mapping[str, int] | None = None,
    ) -> None:
        from importlib import import_module

        from nova_spark import tasks

        self.spark, self.slots = spark, slots
        self._heap: Mapping[str, int] = heap if isinstance(heap, Mapping) else {}
        self._other_heap = heap if isinstance(heap, int) else EXECUTOR_HEAP
        conf = spark.sparkContext.getConf()
        for setting in _MUST_BE:
            if conf.get(setting) != SETTINGS[setting]:
                raise PlacementError(
                    f"session: {setting} is {conf.get(setting)!r}: make the session with "
                    "nova_spark.place.SETTINGS"
                )
        # Which has no types.
        cloudpickle = import_module("pyspark.cloudpickle")
        cloudpickle.register_pickle_by_value(tasks)
        self._nodes: dict[str, str] = {}
        self._seen = spark.sparkContext.accumulator({}, tasks.StagesSeen())

    def profile(self, node: str) -> ResourceProfile:
        """A node's profile; one for all placements of an application."""
        from pyspark.resource import (
            ExecutorResourceRequests,
            ResourceProfileBuilder,
            TaskResourceRequests,
        )

        heap = self._heap.get(node, self._other_heap)
        key = str(self.spark.sparkContext.applicationId), node, self.slots, heap
        if key not in _PROFILES:
            resource = names.resource(node)
            executor = ExecutorResourceRequests().cores(self.slots).memory(f"{heap}m")
            task = TaskResourceRequests().cpus(1).resource(resource, 1)
            _PROFILES[key] = (
                ResourceProfileBuilder()
                .require(executor.resource(resource, self.slots))
                .require(task)
                .build
            )
        return _PROFILES[key]

    def place(self, frame: DataFrame, node: str, name: str | None = None) -> DataFrame:
        """The same rows, computed on a node since the last shuffle (or the source) before.

        All that stands before, up to a shuffle, moves along: place a source before it is filtered
        or aggregated, and the join itself right behind the join. A watermark is lost: declare it
        after placing a source.

        Args:
            frame: batch or streaming.
            node: the node's name.
            name: what `stages` calls it; must be new. Without, a number.
        """
        from nova_spark import tasks

        return self.map(frame, tasks.same, frame.schema, node, name)

    def map(
        self,
        frame: DataFrame,
        step: Step,
        schema: StructType | str,
        node: str,
        name: str | None = None,
    ) -> DataFrame:
        """What a function of Arrow batches makes of rows, computed on a node as in `place`.

        Raises:
            PlacementError: for a name that is taken by a step on another node.
        """
        from nova_spark import tasks

        name = name or f"step {len(self._nodes)}"
        if self._nodes.setdefault(name, node) != node:
            raise PlacementError(f"step {name!r}: is on {self._nodes[name]!r} already")
        traced = tasks.seen_in(step, name, self._seen)
        return frame.mapInArrow(traced, schema, profile=self.profile(node))

    def move(self, frame: DataFrame, node: str, name: str | None = None) -> DataFrame:
        """The rows, sent to a node as they are and handed on from there."""
        return self.place(frame.repartition(1), node, name)

    @staticmethod
    def union(frames: Sequence[DataFrame]) -> DataFrame:
        """All rows in one partition, which can be placed; the frames may be on other nodes.

        Without a shuffle behind each, a plain union of placed frames would be one stage that is
        pinned to several nodes, which Spark refuses.
        """
        from pyspark.sql import DataFrame

        return reduce(DataFrame.unionByName, [one.repartition(1) for one in frames]).coalesce(1)

    def ready(self, nodes: Iterable[str], timeout_s: float = READY_S) -> float:
        """Have every node's executor started; the seconds it took.

        Raises:
            PlacementError: naming nodes without one in time. Spark itself would wait for ever.
        """
        context: Any = self.spark.sparkContext
        begin, wanted = time.monotonic(), list(dict.fromkeys(nodes))
        answered: set[str] = set()
        failed: dict[str, str] = {}

        def ask(node: str) -> None:
            # An underscore of PySpark's, but the documented way to cancel what a thread runs.
            context.setJobGroup(_group(node), f"executor of {node}", True)
            try:
                context.parallelize([0], 1).withResources(self.profile(node)).count()
                answered.add(node)
            except Exception as error:
                failed[node] = str(error).strip().partition("\n")[0]

        threads = [threading.Thread(target=ask, args=(node,), daemon=True) for node in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, begin + timeout_s - time.monotonic()))
        lacking = [node for node in wanted if node not in answered]
        for node in lacking:
            context.cancelJobGroup(_group(node))
        if lacking:
            why = next((failed[node] for node in lacking if node in failed), "")
            resources = ", ".join(f"{node} (resource {names.resource(node)})" for node in lacking)
            heaps = {self._heap.get(node, self._other_heap) for node in lacking}
            raise PlacementError(
                f"no executor on {resources} after {timeout_s:g} s: is there a Worker that offers "
                f"{self.slots} of it, with {self.slots} cores and {max(heaps)} MiB free?"
                f"{f' Spark says: {why}' if why else ''}"
            )
        return time.monotonic() - begin

    @property
    def nodes(self) -> dict[str, str]:
        """Where each named step is to run."""
        return dict(self._nodes)

    @property
    def stages(self) -> dict[str, list[int]]:
        """Which of Spark's stages each step has run in so far, as its tasks told."""
        seen = dict(self._seen.value)
        return {name: sorted(seen.get(name, ())) for name in self._nodes}


def _group(node: str) -> str:
    return f"nova ready {node}"
