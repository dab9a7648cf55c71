"""Runs one plan after another in one session, as files in a directory tell it.

What an experiment starts on the coordinator's host. Order N is the file ``N.order.json``; the
driver answers in ``N.state.json``, and the file ``N.end`` ends the order. ``driver.json`` says that
all executors have started, or why not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines.workload import Workload
from nova_spark import realtime
from nova_spark.flow import Flow
from nova_spark.place import SLOTS, Placement
from nova_spark.session import session
from nova_spark.streaming_join import StreamingJoin
from nova_spark.verification import Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2
# From the first micro-batch of a plan, which holds nothing, to its first tuple.
LEAD_S = 2.0
# How often it is said in which stages steps have run.
TELL_S = 2.0
READY_S = 150.0
PREPARE_S = 180.0
READY, FLOWING, FINISHED, ENDED, FAILED = "ready", "flowing", "finished", "ended", "failed"


@dataclass(frozen=True)
class State:
    """How an order, or the driver itself, stands.

    Attributes:
        state: ``ready`` of a driver; ``flowing``, ``finished``, ``ended`` or ``failed``.
        why: it failed.
        start_ms: when the first tuples of an order are due, ms since the epoch.
        steps: of an order: name, node, and ids of Spark's stages it has been part of.
        url: of the application's pages.
        application: its id.
    """

    state: str
    why: str = ""
    start_ms: int = 0
    steps: tuple[Step, ...] = ()
    url: str = ""
    application: str = ""

    def write(self, path: Path) -> None:
        """Write it, complete or not at all."""
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(asdict(self)), "utf-8")
        unfinished.replace(path)

    @classmethod
    def from_json(cls, text: str) -> State:
        """Read what `write` has written."""
        plain = json.loads(text)
        steps = tuple(Step(**{**one, "stages": tuple(one["stages"])}) for one in plain["steps"])
        return cls(**{**plain, "steps": steps})


@dataclass(frozen=True)
class Prepared:
    """An order's queries.

    Attributes:
        join: not started yet.
        steps: how far its stages are known.
        lead_s: from its first batch, which holds nothing, to its first tuple.
    """

    join: StreamingJoin | realtime.RealTimeJoin
    steps: Callable[[], tuple[Step, ...]]
    lead_s: float


# What an order says, and its flow and workload.
Prepare = Callable[[dict[str, Any], Flow, Workload], Prepared]


def in_batches(spark: SparkSession, slots: int) -> Prepare:
    """Orders run in micro-batches."""

    def prepare(told: dict[str, Any], flow: Flow, workload: Workload) -> Prepared:
        # Each order has steps of its own.
        own = Placement(spark, slots=slots, heap=told["heaps"])

        def steps() -> tuple[Step, ...]:
            stages = own.stages
            return tuple(Step(name, node, tuple(stages[name])) for name, node in own.nodes.items())

        join = StreamingJoin(own, flow, workload, told["results"], told["checkpoints"])
        return Prepared(join, steps, LEAD_S)

    return prepare


def in_real_time(spark: SparkSession, addresses: dict[str, str]) -> Prepare:
    """Orders run in Real-Time Mode."""

    def prepare(told: dict[str, Any], flow: Flow, workload: Workload) -> Prepared:
        join = realtime.RealTimeJoin(
            spark, addresses, flow, workload, told["results"], told["checkpoints"]
        )
        # Sources begin with a batch, and one may have begun just now.
        return Prepared(join, lambda: join.steps, LEAD_S + realtime.BATCH_S)

    return prepare


def serve(directory: Path, prepare: Prepare) -> None:
    """Run orders in the order of their numbers, for ever."""
    number = 0
    while True:
        order = directory / f"{number}.order.json"
        if not order.exists():
            time.sleep(POLL_S)
            continue
        state = directory / f"{number}.state.json"
        try:
            _run(order, state, directory / f"{number}.end", prepare)
        except Exception as error:
            # Whatever it is, the next order may fare better.
            lines = str(error).strip().splitlines() or [type(error).__name__]
            State(FAILED, lines[0]).write(state)
        number += 1


def _run(order: Path, file: Path, end: Path, prepare: Prepare) -> None:
    told = json.loads(order.read_text("utf-8"))
    flow = Flow.from_json(told["flow"], "flow")
    workload = Workload.from_json(told["workload"])
    prepared = prepare(told, flow, workload)
    join = prepared.join
    start, state = 0, FLOWING

    def tell() -> None:
        State(state, start_ms=start, steps=prepared.steps()).write(file)

    try:
        join.prepare(PREPARE_S)
        start = int(time.time() + prepared.lead_s) * 1000
        join.begin(start)
        tell()
        due = time.monotonic() + TELL_S
        while join.flowing and not end.exists():
            join.check()
            if time.monotonic() > due:
                tell()
                due = time.monotonic() + TELL_S
            time.sleep(POLL_S)
        join.check()
        state = ENDED if join.flowing else FINISHED
    finally:
        join.stop()
    tell()


def main() -> int:
    """What runs on the coordinator's host."""
    parser = argparse.ArgumentParser(prog="nova_spark.driver", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="of orders")
    parser.add_argument("--master", required=True, help="spark://HOST:PORT")
    parser.add_argument("--heaps", required=True, help="of the nodes' executors, MiB: JSON")
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--set", dest="settings", required=True, help="of Spark: JSON")
    parser.add_argument("--real-time", help="addresses of the nodes: JSON; for Real-Time Mode")
    given = parser.parse_args()
    ready = given.directory / "driver.json"
    heaps = json.loads(given.heaps)
    try:
        with session(given.master, json.loads(given.settings)) as spark:
            if given.real_time is None:
                Placement(spark, heap=heaps, slots=given.slots).ready(heaps, READY_S)
                prepare = in_batches(spark, given.slots)
            else:
                addresses = json.loads(given.real_time)
                realtime.await_executors(spark, addresses, READY_S)
                prepare = in_real_time(spark, addresses)
            context = spark.sparkContext
            url, application = str(context.uiWebUrl), str(context.applicationId)
            State(READY, url=url, application=application).write(ready)
            serve(given.directory, prepare)
    except (NovaError, OSError) as error:
        State(FAILED, str(error)).write(ready)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
