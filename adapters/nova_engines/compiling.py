"""Nova's own classes for an engine: Java sources of its adapter and of this package, as a jar."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from nova_core.errors import NovaError
from nova_core.programs import PROGRAMS

# Engines run on Java 11 and later; the hosts' may be older than the compiler's.
RELEASE = "11"
STAMP = "META-INF/nova-sources"
TIMEOUT_S = 300
QUOTED = 5


class CompileError(NovaError):
    """Nova's operators for an engine cannot be compiled."""


def sources(directory: Path) -> list[Path]:
    """The Java files below a directory."""
    return sorted(directory.rglob("*.java"))


def resources(directory: Path) -> dict[str, Path]:
    """Files below a directory of sources that go into the jar as they are, by their name there."""
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {
        path.relative_to(directory).as_posix(): path for path in paths if path.suffix != ".java"
    }


def compiled(
    package: str,
    engine: str,
    version: str,
    jars: list[Path],
    target: Path,
    progress: Callable[[str], None] | None = None,
    release: str = RELEASE,
) -> Path:
    """Make a jar of the Java sources of an adapter and of the shared ones, unless it exists.

    Args:
        package: the adapter, which has its sources in a directory ``java``.
        engine: its name for people.
        version: of the engine.
        jars: of the engine; must exist.
        target: the jar to make.
        progress: called with a line of text when something is compiled.
        release: the oldest Java that can run it.

    Returns:
        The jar's path.

    Raises:
        CompileError: where there is no Java compiler, or it refuses the sources.
    """
    with (
        as_file(files("nova_engines") / "java") as shared,
        as_file(files(package) / "java") as directory,
    ):
        java_files = [*sources(shared), *sources(directory)]
        beside = resources(directory)
        stamp = _digest([*java_files, *beside.values()], f"{version} {release}")
        if stamp_of(target) == stamp:
            return target
        if progress is not None:
            progress(f"compiling Nova's operators for {engine}")
        missing = [jar for jar in jars if not jar.is_file()]
        if missing:
            raise CompileError(
                f"{missing[0]}: there is no such file; run `nova engines install {engine.lower()}`"
            )
        with tempfile.TemporaryDirectory() as scratch:
            classes = Path(scratch)
            compile_java(java_files, jars, classes, engine, release)
            for name, path in beside.items():
                (classes / name).parent.mkdir(parents=True, exist_ok=True)
                (classes / name).write_bytes(path.read_bytes())
            pack(classes, stamp, target)
    return target


def _digest(paths: list[Path], version: str) -> str:
    digest = hashlib.sha256(version.encode())
    for path in paths:
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stamp_of(jar: Path) -> str | None:
    """The digest of a Nova jar's sources, stored in the jar; None without a jar or a digest."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(STAMP).decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None


def compiler(engine: str = "Flink") -> str:
    """The Java compiler.

    Raises:
        CompileError: saying how to get one.
    """
    program = PROGRAMS["javac"].path
    if program is None:
        raise CompileError(f"Nova's operators for {engine} need {PROGRAMS['javac'].missing}")
    return program


def compile_java(
    java_files: list[Path], jars: list[Path], classes: Path, engine: str, release: str = RELEASE
) -> None:
    """Compile Java sources.

    Args:
        java_files: the sources.
        jars: that they need.
        classes: directory for what is made.
        engine: whose operators they are, for errors.
        release: the oldest Java that can run them.

    Raises:
        CompileError: where there is no Java compiler, or it refuses the sources.
    """
    command = [
        compiler(engine),
        # This JVM is short-lived: it finishes sooner if it compiles less of itself.
        *("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"),
        *("--release", release, "-nowarn", "-Xlint:none", "-proc:none"),
        *("-encoding", "UTF-8", "-cp", ":".join(map(str, jars)), "-d", str(classes)),
        *map(str, java_files),
    ]
    run_compiler("javac", command)


def run_compiler(name: str, command: list[str]) -> None:
    """Run a compiler.

    Raises:
        CompileError: with the first lines of its output, when it refuses the sources.
    """
    completed = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if completed.returncode != 0:
        wrong = "; ".join((completed.stdout or completed.stderr).strip().splitlines()[:QUOTED])
        raise CompileError(f"{name} ended with code {completed.returncode}: {wrong}")


def pack(classes: Path, stamp: str, target: Path) -> None:
    """Make a jar of the files below a directory, completely or not at all."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
            archive.writestr(STAMP, stamp)
            for path in sorted(path for path in classes.rglob("*") if path.is_file()):
                archive.write(path, path.relative_to(classes).as_posix())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
