"""Spark sessions: memory, logging, progress, and their end; no other module creates one.

By default Spark runs in one JVM beside this process, on all cores of the machine. A
master and settings lead to a standalone cluster, YARN or Kubernetes; workers there need this
package, numpy and pyarrow.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core import extras
from nova_core.environment import variables
from nova_core.errors import NovaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[*]"
HEAP_SHARE = 0.25  # of the machine's memory
LEAST_HEAP = 1024  # MiB
MOST_HEAP = 4096
STOP_TIME = 10  # s
# The parallel collector has the best throughput on few cores. For code that runs only for seconds
# the second compiler costs more than it gains: it waits for code 16 times as hot as usual
# (measured: 45 instead of 57 s of CPU for 100 MB, 88 instead of 102 s for 1 GB).
_JVM = (
    "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=80000 -XX:Tier4MinInvocationThreshold=9600 "
    "-XX:Tier4CompileThreshold=240000 -XX:Tier4BackEdgeThreshold=640000"
)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LOG = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@dataclass(frozen=True)
class SparkOptions:
    """Settings of a Spark session.

    Attributes:
        master: ``local[n]``, ``local[*]``, ``spark://host:port``, ``yarn`` or ``k8s://…``.
        memory: heap of the driver (and, locally, of everything), like ``2g``; None for a quarter
            of the machine's memory, from 1 to 4 GiB.
        settings: any Spark settings; they override those set here.
        log: a file for Spark's log at level INFO; None keeps errors for Nova's messages.
    """

    master: str = MASTER
    memory: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    log: Path | None = None

    @classmethod
    def parsed(
        cls, master: str, memory: str | None, spark_conf: Sequence[str], spark_log: Path | None
    ) -> SparkOptions:
        """Options as the command line gives them; settings are ``name=value``.

        Raises:
            NovaError: for a setting without a value.
        """
        pairs = []
        for setting in spark_conf:
            name, equals, value = setting.partition("=")
            if not equals or not name.startswith("spark."):
                raise NovaError(f"--spark-conf {setting!r}: expected spark.NAME=VALUE")
            pairs.append((name, value))
        return cls(master, memory, tuple(pairs), spark_log)


def default_memory() -> str:
    """A quarter of the machine's memory, within limits."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    return f"{int(min(max(total * HEAP_SHARE, LEAST_HEAP), MOST_HEAP))}m"


def _settings(options: SparkOptions, directory: Path) -> dict[str, str]:
    memory = options.memory or default_memory()
    log = directory / "log4j2.properties"
    log.write_text(_LOG.format(level="info" if options.log else "error"))
    local = options.master.startswith("local")
    settings = {
        "spark.app.name": "nova",
        "spark.master": options.master,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": (
            f"{_JVM} -Djava.io.tmpdir={directory} -Dlog4j2.configurationFile={log}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Workers read and write files of this machine without Hadoop's checksum files beside them.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Whole files come in batches: a few at a time, and few rows of addresses.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "512",
        "spark.sql.files.openCostInBytes": str(256 * 1024),
        "spark.sql.files.maxPartitionBytes": str(48 * 2**20),
        # No sort by directory before writing: a task writes to few of them.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(_bytes_of_task(memory)),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    }
    if local:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    else:
        settings |= {"spark.executor.memory": memory}
    return settings | dict(options.settings)


def _bytes_of_task(memory: str) -> int:
    """Bytes of a shuffle per task: with a heap below 2 GiB, less than Spark's 64 MiB.

    Spark gives tasks 0.6 of the heap less 300 MiB; with more than a sixteenth of that per task,
    joins of large tables ran out of memory.
    """
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", memory.lower())
    # Spark reports an invalid size.
    heap = int(match[1]) * _UNITS[match[2]] if match else LEAST_HEAP * 2**20
    return int(min(max((heap - 300 * 2**20) * 0.6 / 16, 2**20), 64 * 2**20))


@contextmanager
def shown_session(
    options: Mapping[str, Any], settings: Sequence[tuple[str, str]] = ()
) -> Iterator[tuple[SparkSession, Progress]]:
    """A session as the command line asks for it, with its progress on stderr.

    Args:
        options: of `nova_workloads.commands.spark_options`.
        settings: of Spark, where the command line has no others.

    Raises:
        NovaError: as `spark_session`.
    """
    parsed = SparkOptions.parsed(**options)
    parsed = replace(parsed, settings=(*settings, *parsed.settings))
    with spark_session(parsed) as session, progress(session) as shown:
        yield session, shown


@contextmanager
def spark_session(options: SparkOptions) -> Iterator[SparkSession]:
    """A session that ends with the block, also when it is interrupted.

    Raises:
        NovaError: without PySpark or Java, or when Spark does not start; and for errors of Spark
            inside the block, in one line.
    """
    with extras.needed("Spark"):
        errors = _errors_of_spark()
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise NovaError("Spark needs Java 17 or newer: no java in PATH, and JAVA_HOME is not set")
    with ExitStack() as stack:
        _quiet()
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-spark-")))
        noise = options.log or directory / "spark.log"
        session = _started(options, directory, noise)
        try:
            yield session
        except errors as error:
            raise NovaError(f"Spark: {_first_line(error)}{_last_error(noise)}") from error
        finally:
            _stop(session)


def _errors_of_spark() -> tuple[type[Exception], ...]:
    from importlib import import_module

    # py4j has no type hints.
    return (
        import_module("pyspark.errors").PySparkException,
        import_module("py4j.protocol").Py4JError,
    )


def _quiet() -> None:
    """Do not log errors that become one line of Nova's, nor interrupts."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    # py4j logs interrupts with the root logger; a filter is added only once.
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _started(options: SparkOptions, directory: Path, noise: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    here: dict[str, str] = {}
    if options.master.startswith("local"):
        # This interpreter has what workers need; the first python3 in PATH may not.
        defaults = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        here = {name: os.environ.get(name, value) for name, value in defaults.items()}
    if SparkContext._active_spark_context is None:
        # An ended session of other code leaves its gateway, which PySpark would reuse.
        SparkContext._gateway = SparkContext._jvm = None
    settings = _settings(options, directory)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        with variables(**here), noise.open("ab") as sink:
            # The JVM prints before logging is set up; this output goes to its log.
            launch: Any = launch_gateway
            gateway = launch(conf, {"stdout": sink, "stderr": sink})
            context = SparkContext(
                conf=SparkConf(_jvm=gateway.jvm).setAll(list(settings.items())), gateway=gateway
            )
        return SparkSession(context)
    except _errors_of_spark() as error:
        raise NovaError(
            f"Spark does not start on {options.master}: {_first_line(error)}{_last_error(noise)}"
        ) from error


def _stop(session: SparkSession) -> None:
    """End Spark and its JVM, whatever state an interrupt left them in."""
    from pyspark import SparkContext

    context: Any = session.sparkContext
    gateway = context._gateway
    # If the JVM ends first, this server would print a traceback. A stopped context has none.
    if context._accumulatorServer is not None:
        context._accumulatorServer.handle_error = lambda *_: None
    ending = threading.Thread(target=_end, args=(session, gateway), daemon=True)
    ending.start()
    ending.join(STOP_TIME)
    process = gateway.proc
    process.stdin.close()  # ends a JVM of PySpark's
    try:
        process.wait(STOP_TIME)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # PySpark keeps one gateway and context per process, and would reuse ended ones.
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None


def _end(session: SparkSession, gateway: Any) -> None:
    # In a thread of its own, and so over a connection of its own: an interrupt may have left an
    # answer in the main thread's one.
    with suppress(Exception):
        session.sparkContext.cancelAllJobs()
        session.stop()
    with suppress(Exception):
        gateway.shutdown()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # For an error in a worker, the last line of its traceback has the cause.
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return raised[-1] if raised else lines[0]


def _last_error(noise: Path) -> str:
    try:
        lines = [
            line for line in noise.read_text(errors="replace").splitlines() if " ERROR " in line
        ]
    except OSError:
        return ""
    return f" ({lines[-1][:300]})" if lines else ""


@contextmanager
def progress(session: SparkSession) -> Iterator[Progress]:
    """Show on stderr the progress of Spark's tasks while the block runs."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    from nova_core import console

    screen = console.output(stderr=True)
    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tasks"),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    ended = threading.Event()
    reported = Progress(bars)
    follower = threading.Thread(
        target=_follow, args=(session, reported, ended), daemon=True, name="spark-progress"
    )
    with bars:
        follower.start()
        try:
            yield reported
        finally:
            ended.set()
            follower.join(2)


class Progress:
    """The current step, and its finished tasks, on a progress bar."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None

    def step(self, description: str) -> None:
        """A new step begins."""
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(description, total=0)

    def update(self, completed: int, total: int) -> None:
        """Show the finished tasks of the step."""
        if self._task is not None:
            self._bars.update(self._task, completed=completed, total=total)


def _follow(session: SparkSession, reported: Progress, ended: threading.Event) -> None:
    tracker = session.sparkContext.statusTracker()
    while not ended.wait(0.3):
        try:
            completed = total = 0
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    completed, total = completed + info.numCompletedTasks, total + info.numTasks
        except Exception:  # Spark is ending; so will this thread
            return
        if total:
            reported.update(completed, total)
