"""Archives of loaded classes (application class-data sharing of Java 13 and newer).

A process that maps them need not parse and verify some thousand classes when it starts, which
takes most of a start's CPU time.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nova_engines.flow import CUT, JOIN, RELAY, SINK, SOURCE, Flow, Operator
from nova_engines.installing import EngineError
from nova_engines.sources import Source, Sources
from nova_flink.home import PROCESSES, FlinkHome
from nova_flink.verification import await_running, verify

if TYPE_CHECKING:
    from nova_flink.local_cluster import LocalCluster

NODES = ("archive1", "archive2")
# One operator of every kind, with connections within a TaskManager and between two.
EVERYTHING = Flow(
    (
        Operator("source left", NODES[0], SOURCE, source="left"),
        Operator("source right", NODES[1], SOURCE, source="right"),
        Operator("send left", NODES[0], CUT, ("source left",), low=(0.0,), high=(0.5,)),
        Operator("relay left", NODES[1], RELAY, ("send left",)),
        Operator(
            "join",
            NODES[0],
            JOIN,
            ("relay left",),
            ("source right",),
            window=(10, 10),
            match=(10, 1),
        ),
        Operator("sink", NODES[0], SINK, ("join",)),
    )
)
START_S = 3
JOB_S = 120.0
# A process that ends takes some seconds to write its archive, more on a busy machine.
WRITE_S = 120.0


def archive(home: FlinkHome) -> None:
    """Make the archives of a home by running a short job on a local cluster of two nodes.

    Raises:
        EngineError: when Java writes none.
        FlinkError: when the cluster does not start.
    """
    from nova_flink.local_cluster import LocalCluster

    with tempfile.TemporaryDirectory(prefix="nova-flink-") as directory:
        archives = {name: Path(directory) / f"{name}.jsa" for name in PROCESSES}
        with LocalCluster(
            home,
            NODES,
            Path(directory) / "cluster",
            task_manager_options=(f"-XX:ArchiveClassesAtExit={archives['taskmanager']}",),
            job_manager_options=(f"-XX:ArchiveClassesAtExit={archives['jobmanager']}",),
            stop_timeout_s=WRITE_S,
        ) as cluster:
            _use(cluster, Path(directory) / "results")
            # Both TaskManagers would write the same file.
            cluster.kill(NODES[1])
        for name, path in archives.items():
            if not path.is_file():
                raise EngineError(f"{name}: Java wrote no archive of its classes")
            # Copied next to its target first: the temporary directory may be on another disk.
            temporary = home.path / f"{name}.jsa.new"
            temporary.write_bytes(path.read_bytes())
            temporary.replace(home.path / f"{name}.jsa")


def _use(cluster: LocalCluster, result_file: Path) -> None:
    """Run a short job and make every deployment's requests, so that their classes are loaded."""
    from nova_flink.client import Client

    rest, start_ms = cluster.rest, (int(time.time()) + START_S) * 1000
    streams = tuple(Source(name, 1000.0, values=(1.0,)) for name in ("left", "right"))
    sources = Sources(streams, start_ms, count=1000)
    with Client(cluster.home, rest.url) as client:
        job = client.submit(EVERYTHING, sources, result_file, "archive")
        await_running(rest, job, EVERYTHING, JOB_S)
        rest.counters(job)
        verify(rest, job, EVERYTHING)
        rest.wait_ended(job, JOB_S)
