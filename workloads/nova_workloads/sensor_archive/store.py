"""A directory of prepared data that changes as a whole: staging, commit, recovery.

A run writes all its results below a staging directory. When they are complete, a journal that names
them is renamed into place: that is the commit. Then files are moved to their places; when that is
interrupted, the next run that opens the directory finishes it. Works with renames alone, on any
file system that Hadoop supports.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOURNAL = "_commit.json"
LOCK = "_lock.json"
MANIFEST = "manifest.json"
REPORT = "report.json"
STAGING = ".staging-"
# Tables that grow day by day, and tables made anew by every run.
BY_DAY = ("readings", "dropped", "files", "activity", "quality")
WHOLE = ("homes", "sensors", "join_matrix")
DOCUMENTS = (REPORT, MANIFEST)


class Store:
    """A directory of prepared data, open for one run."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._path = jvm.org.apache.hadoop.fs.Path
        self.root = root if "://" in root else str(Path(root).absolute())
        self._files = self._path(self.root).getFileSystem(configuration)
        self._io = jvm.org.apache.commons.io.IOUtils
        self._locked = False
        self.run = uuid.uuid4().hex[:12]
        self.staging = f"{self.root}/{STAGING}{self.run}"

    # --- files --------------------------------------------------------------------------------

    def path(self, *parts: str) -> str:
        """A path in the directory."""
        return "/".join((self.root, *parts))

    def staged(self, *parts: str) -> str:
        """A path in this run's staging directory."""
        return "/".join((self.staging, *parts))

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        return bool(self._files.exists(self._path(path)))

    def has(self, table: str) -> bool:
        """Whether a table exists."""
        return self.exists(self.path(table))

    def report(self) -> dict[str, Any]:
        """The last run's report."""
        return dict(self._read(self.path(REPORT)))

    def _read(self, path: str) -> Any:
        stream = self._files.open(self._path(path))
        try:
            return json.loads(self._io.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _write(self, path: str, value: Any) -> None:
        stream = self._files.create(self._path(path), False)
        try:
            stream.write(bytearray((json.dumps(value, indent=2) + "\n").encode()))
        finally:
            stream.close()

    def _delete(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def _move(self, path: str, to: str) -> None:
        """Rename, and replace what exists there."""
        target = self._path(to)
        self._files.mkdirs(target.getParent())
        if self._files.exists(target):
            self._files.delete(target, True)
        if not self._files.rename(self._path(path), target):
            raise NovaError(f"{to}: cannot be written: {path} cannot be renamed to it")

    def _children(self, path: str) -> Iterator[tuple[str, bool]]:
        if self.exists(path):
            for status in self._files.listStatus(self._path(path)):
                yield status.getPath().getName(), bool(status.isDirectory())

    def _below(self, path: str) -> Iterator[str]:
        for name, is_directory in self._children(path):
            if is_directory:
                yield from (f"{name}/{below}" for below in self._below(f"{path}/{name}"))
            elif not name.startswith(("_", ".")):
                yield name

    def holds_files(self, path: str) -> bool:
        """Whether there is any file below a place."""
        return next(iter(self._below(path)), None) is not None

    def rename_staged(self, name: str, to: str) -> None:
        """Rename a part of the staging directory, if it exists."""
        if self.exists(self.staged(name)):
            self._move(self.staged(name), self.staged(to))

    # --- runs ---------------------------------------------------------------------------------

    def open(self) -> dict[str, Any] | None:
        """Lock the directory, finish an earlier run's commit, remove its uncommitted files.

        Returns:
            the manifest, or None for a new directory.

        Raises:
            NovaError: when another run holds the lock, or the directory has other files.
        """
        if self.exists(self.root) and not self.exists(self.path(MANIFEST)):
            strange = [
                name
                for name, _ in self._children(self.root)
                if name not in (LOCK, JOURNAL) and not name.startswith(STAGING)
            ]
            if strange and not self.exists(self.path(JOURNAL)):
                raise NovaError(f"{self.root}: holds {strange[0]} and no {MANIFEST}; give another")
        self._files.mkdirs(self._path(self.root))
        self._lock()
        if self.exists(self.path(JOURNAL)):
            self._apply()
        for name, _ in list(self._children(self.root)):
            if name.startswith(STAGING):
                self._delete(self.path(name))
        return self._read(self.path(MANIFEST)) if self.exists(self.path(MANIFEST)) else None

    def _lock(self) -> None:
        lock = self.path(LOCK)
        if self.exists(lock):
            holder = self._read(lock)
            here = holder["host"] == socket.gethostname()
            if not here or _alive(holder["process"]):
                raise NovaError(
                    f"{self.root}: process {holder['process']} on {holder['host']} is at work "
                    f"here; if it is not, remove {lock}"
                )
            self._delete(lock)
        # Where another run makes the file first, this fails, and the lock is that run's.
        self._write(lock, {"host": socket.gethostname(), "process": os.getpid()})
        self._locked = True

    def close(self) -> None:
        """Remove uncommitted files, and the lock."""
        if not self._locked:
            return
        if "://" not in self.root:
            # Without Spark, which may have been interrupted in the middle of an answer.
            if not Path(self.path(JOURNAL)).exists():
                shutil.rmtree(self.staging, ignore_errors=True)
            Path(self.path(LOCK)).unlink(missing_ok=True)
            return
        if not self.exists(self.path(JOURNAL)):
            self._delete(self.staging)
        self._delete(self.path(LOCK))

    def commit(self, manifest: Any, report: Any, replaced_days: Sequence[str] = ()) -> None:
        """Make the staged files the directory's content, all or none.

        Args:
            manifest: document of the directory.
            report: document of the run.
            replaced_days: days whose earlier rows are removed, in tables that grow day by day.
        """
        self._write(self.staged(MANIFEST), manifest)
        self._write(self.staged(REPORT), report)
        self._write(self.staged(JOURNAL), {"run": self.run, "replaced_days": list(replaced_days)})
        self._move(self.staged(JOURNAL), self.path(JOURNAL))
        self._apply()

    def _apply(self) -> None:
        journal = self._read(self.path(JOURNAL))
        run, staging = journal["run"], self.path(f"{STAGING}{journal['run']}")
        for table in BY_DAY:
            for day in journal["replaced_days"]:
                place = self.path(table, f"day={day}")
                for file in list(self._below(place)):
                    if not file.rsplit("/", 1)[-1].startswith(run):
                        self._delete(f"{place}/{file}")
            for file in list(self._below(f"{staging}/{table}")):
                head, _, name = file.rpartition("/")
                to = self.path(*(part for part in (table, head, f"{run}-{name}") if part))
                self._move(f"{staging}/{table}/{file}", to)
        for table in (*WHOLE, *DOCUMENTS):
            if self.exists(f"{staging}/{table}"):
                self._move(f"{staging}/{table}", self.path(table))
        self._delete(self.path(JOURNAL))
        self._delete(staging)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
