"""Starts a translated job from Flink's own environment (standard library and pyflink only)."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.dataflow import Dataflow
from nova_engines.workload import Workload
from nova_flink.builder import DataflowJob

LEAD_S = 10


def main() -> int:
    """What ``submit.sh`` runs."""
    parser = argparse.ArgumentParser(prog="submit.sh", description="Start the job on the cluster.")
    parser.add_argument("--dataflow", type=Path, required=True)
    parser.add_argument("--workload", type=Path, required=True)
    parser.add_argument("--rest", required=True, help="URL of the JobManager")
    parser.add_argument("--results", required=True, help="file of results on the sink's host")
    parser.add_argument(
        "--start-ms",
        type=int,
        help="event time of the first tuples, ms since the epoch; without, the workload's, or "
        f"{LEAD_S} s from now where that is 0",
    )
    parser.add_argument("--count", type=int, help="tuples per source, after which the job ends")
    arguments = parser.parse_args()
    try:
        workload = Workload.read(arguments.workload)
        start = workload.start_ms or (int(time.time()) + LEAD_S) * 1000
        workload = replace(
            workload,
            start_ms=start if arguments.start_ms is None else arguments.start_ms,
            count=workload.count if arguments.count is None else arguments.count,
        )
        dataflow = Dataflow.read(arguments.dataflow)
        job = DataflowJob(dataflow, workload, arguments.rest, arguments.results).submit("nova")
    except (NovaError, OSError) as error:
        sys.stderr.write(f"submit.sh: {error}\n")
        return 2
    sys.stdout.write(f"{job}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
