"""Runs a plan's job on a cluster: what ``run.sh`` of `nova translate` starts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.documents import write_json
from nova_engines.flow import Flow
from nova_engines.sources import Sources
from nova_spark.realtime import LEAD_S, RealTimeJob, await_executors, settings
from nova_spark.session import session
from nova_spark.verification import Record

# How long after its last tuple is due a run may take to end.
PATIENCE_S = 120.0
RECORD_S = 2.0


def run(
    flow: Flow,
    sources: Sources,
    *,
    master: str,
    addresses: Mapping[str, str],
    results: str,
    checkpoints: str,
    record: Path,
    chosen: Mapping[str, str],
) -> None:
    """Run a flow until its tuples end, or until interrupted.

    Args:
        flow: what runs where.
        sources: what they emit; a start of 0, or one before Spark is ready, is replaced by the
            earliest possible.
        master: ``spark://host:port``.
        addresses: of the nodes.
        results: see `nova_spark.realtime.RealTimeJob`.
        checkpoints: likewise.
        record: file that says how far the job is, for ``nova cluster verify``.
        chosen: settings of Spark, `nova_spark.realtime.settings` among them.
    """
    with session(master, chosen) as spark:
        begin = time.monotonic()
        await_executors(spark, {node: addresses[node] for node in flow.nodes})
        _say(f"executors: {time.monotonic() - begin:.1f} s")
        context = spark.sparkContext
        join = RealTimeJob(spark, addresses, flow, sources, results, checkpoints)

        def look() -> bool:
            state = Record(str(context.uiWebUrl), str(context.applicationId), join.steps)
            write_json(record, state)
            if ended is not None and time.time() > ended:
                raise NovaError("Spark: cannot keep up; its tuples are long due")
            return True

        try:
            join.prepare()
            start = max(sources.start_ms, int(time.time() + LEAD_S) * 1000)
            join.begin(start)
            _say(f"tuples flow from {start}")
            ended = None
            if sources.last_ms is not None and sources.speed:
                length = float(sources.due_us(sources.last_ms)) / 1_000_000
                ended = start / 1000 + length + PATIENCE_S
            elif sources.count is not None:
                slowest = min(one.rate for one in sources.sources)
                ended = start / 1000 + sources.count / slowest + PATIENCE_S
            join.follow(look, RECORD_S)
            look()
        finally:
            join.stop()


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
    parser.add_argument("--heap", type=int, required=True, help="of an executor, MiB")
    parser.add_argument("--count", type=int, help="tuples per source, after which the job ends")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="spark.NAME=VALUE"
    )
    arguments = parser.parse_args()
    try:
        sources = Sources.read(arguments.directory / "sources.json")
        clients = sorted(arguments.directory.glob("kafka-clients-*.jar"))
        flow = Flow.read(arguments.directory / "flow.json")
        kafka = clients[0] if clients else None
        own = settings(arguments.heap, kafka, queries=flow.has_columns)
        run(
            flow,
            sources if arguments.count is None else replace(sources, count=arguments.count),
            master=arguments.master,
            addresses=json.loads((arguments.directory / "addresses.json").read_text("utf-8")),
            results=arguments.results,
            checkpoints=f"{arguments.checkpoints}/{int(time.time())}",
            record=arguments.record,
            chosen={**own, **dict(one.split("=", 1) for one in arguments.settings if "=" in one)},
        )
    except (NovaError, OSError) as error:
        _say(f"run.sh: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
