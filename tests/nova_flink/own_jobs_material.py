"""A client of Flink as people have it, with Nova's plug-in in its lib, and jobs for it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from needs_flink import require

from nova_engines.compiling import compiler, pack
from nova_engines.installing import java
from nova_engines.maven import Artifact, fetch
from nova_flink.configuration import MODULES
from nova_flink.home import VERSION, FlinkHome
from nova_flink.local_cluster import LocalCluster

HERE = Path(__file__).parent
EXAMPLES = Artifact(
    "org.apache.flink",
    "flink-examples-streaming",
    VERSION,
    "6bab7c5329ae2996eca7ce652efd390e12c8075db4fdb104e0c437bcb5ce7d75",
)
# The SQL client needs them, and pip's Flink comes without.
GATEWAY = (
    Artifact(
        "org.apache.flink",
        "flink-sql-gateway",
        VERSION,
        "aad296a152dc367ddd70727f5a57dd61958cff3d8dceb1f947bf8d9705c8d724",
    ),
    Artifact(
        "org.apache.flink",
        "flink-sql-gateway-api",
        VERSION,
        "85658df5d4fc689cd9a5d45b6841dbdbae4a92942b9c3e561cec396fb4e910ff",
    ),
)
SMALL = "-Xmx400m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
START_MS = 1_700_000_000_000


def cluster_of_others(
    directory: Path,
    nodes: Sequence[str] = ("hub", "hill", "shore", "barn", "mill"),
    settings: Mapping[str, str] | None = None,
    **options: Any,
) -> LocalCluster:
    """A cluster for jobs that Nova did not make: a TaskManager for each node."""
    home = FlinkHome.default()
    require(home)
    common = {
        "taskmanager.memory.managed.size": "96m",
        # What batch jobs read files of other operators with; the default is all there is.
        "taskmanager.memory.framework.off-heap.batch-shuffle.size": "4m",
        # A process may wait for its turn on a busy machine.
        "pekko.startup-timeout": "120 s",
    }
    return LocalCluster(
        home,
        nodes,
        directory,
        settings=common | dict(settings or {}),
        start_timeout_s=300,
        **options,
    )


class OwnClient:
    """A directory with what a person has on the machine that jobs are submitted from.

    Attributes:
        lib: Flink's jars, and `nova-flink.jar`.
        examples: the jar of Flink's own examples.
    """

    def __init__(
        self, home: FlinkHome, rest_url: str, directory: Path, extra: Sequence[Path] = ()
    ) -> None:
        self.home, self.directory = home, directory
        self.lib = directory / "lib"
        jars = directory / "jars"
        fetch((EXAMPLES, *GATEWAY), jars, lambda message: None, "Flink's examples")
        self.examples = jars / EXAMPLES.file
        self.lib.mkdir()
        own = [*home.jars, home.extension_jar, *(jars / one.file for one in GATEWAY), *extra]
        for jar in own:
            (self.lib / jar.name).symlink_to(jar.resolve())
        host, _, port = rest_url.removeprefix("http://").rpartition(":")
        self.conf = directory / "conf"
        self.conf.mkdir()
        lines = {
            "env.java.opts.all": " ".join(MODULES),
            "env.java.opts.client": SMALL,
            "rest.address": host,
            "rest.port": port,
            "execution.target": "nova",
            "parallelism.default": "1",
        }
        text = "".join(f"{key}: {value}\n" for key, value in lines.items())
        (self.conf / "config.yaml").write_text(text)
        for name in ("log4j-cli.properties", "log4j.properties"):
            (self.conf / name).write_text("rootLogger.level = OFF\n")
        (directory / "log").mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """For Flink's scripts."""
        return {
            **os.environ,
            "FLINK_HOME": str(self.home.flink),
            "FLINK_CONF_DIR": str(self.conf),
            "FLINK_LIB_DIR": str(self.lib),
            "FLINK_OPT_DIR": str(self.home.flink / "opt"),
            "FLINK_LOG_DIR": str(self.directory / "log"),
            "TMPDIR": str(self.directory),
            "HOME": str(self.directory),
        }

    def submit(self, tasks: Mapping[str, Sequence[str]], timeout_s: float) -> dict[str, str]:
        """What commands say, each behind its exit code in the first line.

        Args:
            tasks: by any name: ``flink`` or ``sql-client``, and arguments.
            timeout_s: for all of them.
        """
        files = []
        for name, words in tasks.items():
            files.append(self.directory / name)
            files[-1].write_text("\n".join(words))
        path = [*sorted(self.lib.iterdir()), *(self.home.flink / "opt").glob("*.jar")]
        temporary = f"-Djava.io.tmpdir={self.directory}"
        command = [java(), *SMALL.split(), temporary, *MODULES, "-cp", ":".join(map(str, path))]
        subprocess.run(
            [*command, str(HERE / "java" / "Submit.java"), *map(str, files)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=True,
        )
        return {name: (self.directory / f"{name}.out").read_text() for name in tasks}


def compiled_jobs(home: FlinkHome, name: str, directory: Path) -> Path:
    """A jar of one of the tests' own programs."""
    classes, jar = directory / "classes", directory / f"{name}.jar"
    command = [compiler(), "--release", "11", "-nowarn", "-cp", ":".join(map(str, home.jars))]
    subprocess.run([*command, "-d", str(classes), str(HERE / "java" / f"{name}.java")], check=True)
    pack(classes, "", jar)
    return jar


class Service:
    """`nova serve` in a directory."""

    def __init__(self, directory: Path) -> None:
        main = "from nova_core.cli import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", main, "serve", str(directory), "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = str(json.loads(self._process.stdout.readline())["url"])

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def readings(directory: Path, count: int, seed: int = 1) -> dict[str, Path]:
    """Two files of numbered tuples with keys and event times."""
    rng, files = random.Random(seed), {}
    for side in ("pressure", "humidity"):
        rows = [f"{i},{rng.randrange(20)},{START_MS + 5 * i}\n" for i in range(count)]
        files[side] = directory / f"{side}.csv"
        files[side].write_text("".join(rows))
    return files


def joined(files: Mapping[str, Path]) -> list[tuple[int, int]]:
    """The numbers that a join by key over windows of a second pairs, sorted: the reference."""

    def rows(side: str) -> list[list[int]]:
        lines = files[side].read_text().splitlines()
        return [[int(field) for field in line.split(",")] for line in lines]

    there = defaultdict(list)
    for number, key, ms in rows("humidity"):
        there[key, ms // 1000].append(number)
    left = rows("pressure")
    return sorted((one, other) for one, key, ms in left for other in there[key, ms // 1000])


def near(files: Mapping[str, Path], ms: int) -> list[tuple[int, int]]:
    """The same for an interval join: tuples of equal keys at most so far apart."""

    def rows(side: str) -> list[list[int]]:
        lines = files[side].read_text().splitlines()
        return [[int(field) for field in line.split(",")] for line in lines]

    there = defaultdict(list)
    for number, key, at in rows("humidity"):
        there[key].append((number, at))
    return sorted(
        (one, other)
        for one, key, at in rows("pressure")
        for other, then in there[key]
        if abs(at - then) <= ms
    )


def of_files(files: Mapping[str, Path]) -> dict[str, str]:
    """Where SQL finds the tuples of `readings`."""
    return {side: f"'connector' = 'filesystem', 'path' = '{file}'" for side, file in files.items()}


def joining(where: Mapping[str, str], results: Path, interval_ms: int | None = None) -> str:
    """A SQL script with the join of `joined`, or of `near`, of tables with these options."""
    tables = "".join(
        f"""CREATE TABLE {side} (n BIGINT, k INT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
            WATERMARK FOR ts AS ts) WITH ('format' = 'csv', {options});\n"""
        for side, options in where.items()
    )
    window = "(SELECT * FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' SECOND)))".format
    if interval_ms is None:
        query = f"""SELECT l.n, r.n FROM {window("pressure")} l JOIN {window("humidity")} r
            ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"""
    else:
        bound = f"INTERVAL '{interval_ms / 1000:.3f}' SECOND(2, 3)"
        query = f"""SELECT l.n, r.n FROM pressure l JOIN humidity r ON l.k = r.k
            AND l.ts BETWEEN r.ts - {bound} AND r.ts + {bound}"""
    return f"""{tables}
        CREATE TABLE results (lnum BIGINT, rnum BIGINT) WITH ('connector' = 'filesystem',
            'format' = 'csv', 'path' = '{results}');
        SET 'table.dml-sync' = 'true';
        INSERT INTO results {query};\n"""


def written(results: Path) -> list[tuple[int, int]]:
    """What a job has put into a directory, sorted."""
    lines = [line for file in results.glob("part-*") for line in file.read_text().splitlines()]
    return sorted((int(a), int(b)) for a, b in (line.split(",") for line in lines))


def wait(condition: Callable[[], bool], timeout_s: float = 300.0) -> None:
    """Until a function is true."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.2)
