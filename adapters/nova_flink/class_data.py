"""Archives of loaded classes (application class-data sharing of Java 13 and newer).

A process that maps them does not parse and verify some thousand classes at its start, which is
most of the CPU time a start takes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from nova_flink.home import PROCESSES, EngineError, FlinkHome

if TYPE_CHECKING:
    from nova_flink.local_cluster import LocalCluster

# Writing an archive at its end takes a process some seconds, more on a busy machine.
WRITE_S = 120.0


def archive(home: FlinkHome) -> None:
    """Make the archives of a home: start a cluster of one node here, and end it.

    Raises:
        EngineError: when Java writes none.
        FlinkError: when the cluster does not start.
    """
    from nova_flink.local_cluster import LocalCluster

    with tempfile.TemporaryDirectory(prefix="nova-flink-") as directory:
        made = {name: Path(directory) / f"{name}.jsa" for name in PROCESSES}
        options = {name: (f"-XX:ArchiveClassesAtExit={path}",) for name, path in made.items()}
        with LocalCluster(
            home,
            ["archive"],
            Path(directory) / "cluster",
            task_manager_options=options["taskmanager"],
            job_manager_options=options["jobmanager"],
            stop_timeout_s=WRITE_S,
        ) as cluster:
            _use(cluster)
        for name, path in made.items():
            if not path.is_file():
                raise EngineError(f"{name}: Java wrote no archive of its classes")
            # Beside its place first: the temporary directory may be on another disk.
            temporary = home.path / f"{name}.jsa.new"
            temporary.write_bytes(path.read_bytes())
            temporary.replace(home.path / f"{name}.jsa")


def _use(cluster: LocalCluster) -> None:
    """Ask for what every deployment asks for, so that its classes are loaded."""
    rest = cluster.rest
    rest.overview()
    rest.task_managers()
    rest.jobs()


__all__ = ["archive"]
