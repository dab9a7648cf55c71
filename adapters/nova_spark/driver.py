"""Runs one plan after another in one session, as ordered by files in a directory.

An experiment starts it on the coordinator's host. Order N is the file ``N.order.json``; the
driver answers in ``N.state.json``, and the file ``N.end`` ends the order. ``driver.json`` says that
all executors have started, or why not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_engines.documents import write_json
from nova_engines.flow import Flow
from nova_engines.sources import Sources
from nova_spark.realtime import LEAD_S, RealTimeJob, await_executors
from nova_spark.session import session
from nova_spark.verification import Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2
# How often the stages of the steps are reported.
TELL_S = 2.0
READY, FLOWING, FINISHED, ENDED, FAILED = "ready", "flowing", "finished", "ended", "failed"


@dataclass(frozen=True)
class State:
    """The state of an order, or of the driver itself.

    Attributes:
        state: ``ready`` of a driver; ``flowing``, ``finished``, ``ended`` or ``failed``.
        why: reason of a failure.
        start_ms: when the first tuples of an order are due, ms since the epoch.
        steps: of an order: name, node, and ids of Spark's stages it has been part of.
        url: of the application's pages.
        application: its id.
        read: number of every source's tuples in ended batches.
    """

    state: str
    why: str = ""
    start_ms: int = 0
    steps: tuple[Step, ...] = ()
    url: str = ""
    application: str = ""
    read: dict[str, int] = field(default_factory=dict)


def serve(directory: Path, spark: SparkSession, addresses: dict[str, str]) -> None:
    """Run orders in the order of their numbers, for ever."""
    number = 0
    while True:
        order = directory / f"{number}.order.json"
        if not order.exists():
            time.sleep(POLL_S)
            continue
        state = directory / f"{number}.state.json"
        try:
            _run(order, state, directory / f"{number}.end", spark, addresses)
        except Exception as error:
            # Whatever failed, the next order may succeed.
            lines = str(error).strip().splitlines() or [type(error).__name__]
            write_json(state, State(FAILED, lines[0]))
        number += 1


def _run(
    order: Path, file: Path, end: Path, spark: SparkSession, addresses: dict[str, str]
) -> None:
    plain = json.loads(order.read_text("utf-8"))
    flow = Flow.from_json(plain["flow"])
    sources = Sources.from_json(plain["sources"])
    places = plain["results"], plain["checkpoints"]
    join = RealTimeJob(spark, addresses, flow, sources, *places)
    due = time.monotonic()
    try:
        join.prepare()
        start = int(time.time() + LEAD_S) * 1000
        join.begin(start)

        def tell(state: str) -> None:
            write_json(file, State(state, start_ms=start, steps=join.steps, read=join.read))

        def look() -> bool:
            nonlocal due
            if time.monotonic() >= due:
                tell(FLOWING)
                due = time.monotonic() + TELL_S
            return not end.exists()

        state = FINISHED if join.follow(look, POLL_S) else ENDED
        tell(state)
    finally:
        join.stop()


def main() -> int:
    """What runs on the coordinator's host."""
    parser = argparse.ArgumentParser(prog="nova_spark.driver", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="of orders")
    parser.add_argument("--master", required=True, help="spark://HOST:PORT")
    parser.add_argument("--addresses", required=True, help="of the nodes: JSON")
    parser.add_argument("--set", dest="settings", required=True, help="of Spark: JSON")
    arguments = parser.parse_args()
    ready = arguments.directory / "driver.json"
    try:
        with session(arguments.master, json.loads(arguments.settings)) as spark:
            addresses = json.loads(arguments.addresses)
            await_executors(spark, addresses)
            context = spark.sparkContext
            url, application = str(context.uiWebUrl), str(context.applicationId)
            write_json(ready, State(READY, url=url, application=application))
            serve(arguments.directory, spark, addresses)
    except (NovaError, OSError) as error:
        write_json(ready, State(FAILED, str(error)))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
