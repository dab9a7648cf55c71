"""Nova's Scala for Spark's Real-Time Mode, compiled once against Spark's own jars.

It has what Real-Time Mode needs and PySpark lacks: sources that pace on their hosts or read Kafka,
a stateful join of the two sides of a union, a sink that writes results as they arrive, preferred
hosts for a stage, and the operators of queries with columns, which are the Java of all engines.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from nova_engines.compiling import compile_java, pack, run_compiler, sources, stamp_of
from nova_engines.installing import engines_directory, java, locked
from nova_spark.home import check

EXTENSIONS = "org.apache.spark.sql.nova.Extensions"


def build(
    progress: Callable[[str], None] = lambda message: None,
    kafka: Path | None = None,
    *,
    queries: bool = False,
) -> list[Path]:
    """Make a jar of Nova's classes, unless one of these sources for this Spark exists.

    Args:
        progress: called with a line of text when something is compiled.
        kafka: the jar of Kafka's client, for jobs that read Kafka.
        queries: whether jobs may have tuples with columns.

    Returns:
        Jars that a session needs: Nova's, in a directory beside the engine homes, and Kafka's.

    Raises:
        NovaError: without Spark or Java, of queries without a Java compiler, or when a compiler
            refuses the sources.
    """
    home = check()
    clients = [] if kafka is None else [kafka]
    jars = [*sorted((home / "jars").glob("*.jar")), *clients]
    parts = [*(["kafka"] if kafka else []), *(["query"] if queries else [])]
    name = "-".join(["nova-spark", *parts])
    target = engines_directory() / "spark-extension" / f"{name}.jar"
    with (
        as_file(files("nova_spark") / "scala") as directory,
        as_file(files("nova_engines") / "java") as shared,
    ):
        scala = sorted(directory.glob("*.scala"))
        for part in (*parts, *(["query/kafka"] if len(parts) > 1 else [])):
            scala += sorted((directory / part).glob("*.scala"))
        java_files = sources(shared) if queries else []
        digest = hashlib.sha256("\n".join(jar.name for jar in jars).encode())
        for source in (*scala, *java_files):
            digest.update(f"\0{source.name}\0".encode() + source.read_bytes())
        stamp = digest.hexdigest()
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.with_name(".lock"), progress):
            if stamp_of(target) != stamp:
                progress("compiling Nova's operators for Spark")
                with tempfile.TemporaryDirectory() as scratch:
                    classes = Path(scratch)
                    if java_files:
                        compile_java(java_files, jars, classes, "Spark")
                    _compile(scala, [*jars, classes], classes)
                    pack(classes, stamp, target)
    return [target, *clients]


def kafka_client() -> Path:
    """The jar of Kafka's client.

    Raises:
        NovaError: where Kafka is not installed.
    """
    from nova_kafka.home import broker_home

    home = broker_home()
    home.check()
    return next(jar for jar in home.jars if jar.name.startswith("kafka-clients-"))


def _compile(sources: list[Path], path_entries: list[Path], classes: Path) -> None:
    path = ":".join(map(str, path_entries))
    command = [
        *(java("Spark"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss8m"),
        *("-cp", path, "scala.tools.nsc.Main", "-cp", path, "-nowarn", "-d", str(classes)),
        *map(str, sources),
    ]
    run_compiler("scalac", command)
