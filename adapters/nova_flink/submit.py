"""Starts a translated job from Flink's own environment (standard library and pyflink only)."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.flow import Flow
from nova_engines.sources import Sources
from nova_flink.builder import FlowJob

LEAD_S = 10


def main() -> int:
    """What ``submit.sh`` runs."""
    parser = argparse.ArgumentParser(prog="submit.sh", description="Start the job on the cluster.")
    parser.add_argument("--flow", type=Path, required=True)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--rest", required=True, help="URL of the JobManager")
    parser.add_argument("--results", required=True, help="file of results on the sink's host")
    parser.add_argument(
        "--start-ms",
        type=int,
        help="event time of the first tuples, ms since the epoch; without, the sources' own, or "
        f"{LEAD_S} s from now where that is 0",
    )
    parser.add_argument("--count", type=int, help="tuples per source, after which the job ends")
    arguments = parser.parse_args()
    try:
        sources = Sources.read(arguments.sources)
        start = sources.start_ms or (int(time.time()) + LEAD_S) * 1000
        sources = replace(
            sources,
            start_ms=start if arguments.start_ms is None else arguments.start_ms,
            count=sources.count if arguments.count is None else arguments.count,
        )
        flow = Flow.read(arguments.flow)
        job = FlowJob(flow, sources, arguments.rest, arguments.results).submit("nova")
    except (NovaError, OSError) as error:
        sys.stderr.write(f"submit.sh: {error}\n")
        return 2
    sys.stdout.write(f"{job}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
