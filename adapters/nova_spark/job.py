"""Runs a translated plan: what ``run.sh`` starts on a host that the nodes can reach."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.workload import Workload
from nova_spark.flow import Flow
from nova_spark.place import READY_S, SLOTS, Placement
from nova_spark.session import session
from nova_spark.streaming_join import PREPARE_S, StreamingJoin
from nova_spark.verification import Record, Step

# From the first micro-batch, which holds nothing, to the first tuple.
LEAD_S = 2
# A run that ends may take so much longer than its tuples are due.
PATIENCE_S = 120.0
RECORD_S = 2.0


def run(
    flow: Flow,
    workload: Workload,
    *,
    master: str,
    results: str,
    checkpoints: str,
    record: Path,
    heaps: dict[str, int] | None = None,
    slots: int = SLOTS,
    settings: dict[str, str] | None = None,
) -> None:
    """Run a flow until its tuples end, or until interrupted.

    Args:
        flow: what runs where.
        workload: what the sources emit and how it is joined; a start of 0, or one that has passed
            when Spark is ready, becomes then.
        master: ``spark://host:port``.
        results: see `nova_spark.streaming_join.StreamingJoin`.
        checkpoints: likewise.
        record: file that says how far the job is, for ``nova cluster verify``.
        heaps: of the nodes' executors, MiB.
        slots: tasks a node runs at once.
        settings: of Spark.
    """
    with session(master, settings) as spark:
        placement = Placement(spark, heap=heaps, slots=slots)
        _say(f"executors: {placement.ready(flow.nodes, READY_S):.1f} s")
        join = StreamingJoin(placement, flow, workload, results, checkpoints)
        begin = time.monotonic()
        try:
            join.prepare(PREPARE_S)
            _say(f"first micro-batch: {time.monotonic() - begin:.1f} s")
            start = max(workload.start_ms, int(time.time() + LEAD_S) * 1000)
            join.begin(start)
            _say(f"tuples flow from {start}")
            ended = None
            if workload.count is not None:
                slowest = min(one.rate for one in workload.sources)
                ended = start / 1000 + workload.count / slowest + PATIENCE_S
            while join.flowing:
                join.check()
                write_record(record, placement)
                if ended is not None and time.time() > ended:
                    raise NovaError("Spark: cannot keep up; its tuples are long due")
                time.sleep(RECORD_S)
        finally:
            join.stop()
        write_record(record, placement)


def write_record(path: Path, placement: Placement) -> None:
    """Write what ``nova cluster verify`` reads."""
    context = placement.spark.sparkContext
    stages = placement.stages
    record = Record(
        str(context.uiWebUrl),
        str(context.applicationId),
        tuple(Step(name, node, tuple(stages[name])) for name, node in placement.nodes.items()),
    )
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_text(record.to_json(), "utf-8")
    unfinished.replace(path)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> int:
    """What ``run.sh`` runs."""
    parser = argparse.ArgumentParser(prog="run.sh", description="Run the job on the cluster.")
    parser.add_argument("--directory", type=Path, required=True, help="that holds flow.json")
    parser.add_argument("--master", required=True, help="spark://HOST:PORT")
    parser.add_argument("--results", required=True, help="directory on the sinks' hosts")
    parser.add_argument("--checkpoints", required=True, help="directory on all hosts; new")
    parser.add_argument("--record", type=Path, default=Path("record.json"))
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--count", type=int, help="tuples per source, after which the job ends")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="spark.NAME=VALUE"
    )
    given = parser.parse_args()
    try:
        workload = Workload.read(given.directory / "workload.json")
        run(
            Flow.read(given.directory / "flow.json"),
            workload if given.count is None else replace(workload, count=given.count),
            master=given.master,
            results=given.results,
            checkpoints=f"{given.checkpoints}/{int(time.time())}",
            record=given.record,
            heaps=json.loads((given.directory / "heaps.json").read_text("utf-8")),
            slots=given.slots,
            settings=dict(one.split("=", 1) for one in given.settings if "=" in one),
        )
    except (NovaError, OSError) as error:
        _say(f"run.sh: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
