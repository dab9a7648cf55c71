"""Fetches jars by their Maven coordinates: exactly those named, with checked checksums.

Maven does this with a plug-in. Its jars are pinned, too, and checked before any of them runs.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from xml.sax.saxutils import escape

from nova_core.programs import PROGRAMS
from nova_engines.installing import EngineError

# The last whose goal `copy` takes a jar by its coordinates alone. Later ones read the POMs of what
# they copy and of their parents, which for some artifacts are not published.
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.10:copy"
PLUGIN_JARS = "maven-plugin.txt"
_PLUGIN = "<groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>".format(
    *PLUGIN.split(":")
)
CONNECT_S = 20
COPYING = re.compile(r"\[INFO\] Copying (\S+\.jar) to ")
REPOSITORY = re.compile(r"^\[DEBUG\] Using local repository at (.+)$", re.MULTILINE)
LOADED = re.compile(r"^\[DEBUG\] +Included: (\S+):(\S+):jar:(\S+)$", re.MULTILINE)
CHUNK = 1 << 20


@dataclass(frozen=True)
class Artifact:
    """A jar in a Maven repository.

    Attributes:
        group: e.g. ``org.apache.storm``.
        name: artifact id.
        version: exact.
        sha256: checksum of the jar, in hex.
    """

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Name of the jar."""
        return f"{self.name}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """As Maven writes them."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def repository_path(self) -> str:
        """Directory in a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}"


def read_artifacts(text: str) -> tuple[tuple[Artifact, str], ...]:
    """Pinned jars, and the use of each.

    Args:
        text: a line per jar: coordinates, sha256 checksum, and a word that says what it is for;
            lines that begin with ``#`` are notes.
    """
    pinned = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coordinates, checksum, use = line.split()
            group, name, version = coordinates.split(":")
            pinned.append((Artifact(group, name, version, checksum), use))
    return tuple(pinned)


def fetch(
    artifacts: Sequence[Artifact],
    directory: Path,
    progress: Callable[[str], None],
    need: str,
) -> None:
    """Copy jars into a directory, from Maven's cache or its repositories.

    Args:
        artifacts: what to get.
        directory: is created; its content is of no use when this fails.
        progress: called with a line of text after each jar.
        need: what needs Maven, for the error without it.

    Raises:
        EngineError: without Maven, when it fails, or for a jar with another checksum.
    """
    maven = PROGRAMS["mvn"].path
    if maven is None:
        raise EngineError(f"{need} needs Maven: {PROGRAMS['mvn'].missing}")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        pom = Path(scratch) / "pom.xml"
        # As an extension of the build the plug-in is fetched and loaded, but does nothing.
        pom.write_text(_pom(f"<extensions><extension>{_PLUGIN}</extension></extensions>"), "utf-8")
        _check_plugin(_run([maven, "-X", "validate"], scratch, 0, progress))
        pom.write_text(_pom(_copying(artifacts, directory)), "utf-8")
        _run([maven, PLUGIN], scratch, len(artifacts), progress)
    for artifact in artifacts:
        _check(artifact, directory / artifact.file)


def plugin_jars() -> dict[tuple[str, ...], Artifact]:
    """The jars that Maven may load to copy others, by group, name and version."""
    listed = read_artifacts((files("nova_engines") / PLUGIN_JARS).read_text("utf-8"))
    return {(one.group, one.name, one.version): one for one, _ in listed}


def _check_plugin(output: str) -> None:
    """Check the jars that Maven says it has loaded for the plug-in.

    Raises:
        EngineError: for one that is not pinned or has another checksum.
    """
    place, loaded = REPOSITORY.search(output), LOADED.findall(output)
    if place is None or not loaded:
        raise EngineError("Maven does not say which jars it loads; Maven 3.8 and 3.9 do")
    pinned = plugin_jars()
    for coordinates in loaded:
        artifact = pinned.get(coordinates)
        if artifact is None:
            raise EngineError(
                f"Maven loads {':'.join(coordinates)} for {PLUGIN.removesuffix(':copy')}, which "
                f"is not in Nova's {PLUGIN_JARS}"
            )
        _check(artifact, Path(place[1]) / artifact.repository_path / artifact.file)


def _run(
    command: Sequence[str], directory: str, count: int, progress: Callable[[str], None]
) -> str:
    # Standard input is no terminal: Maven shows no bars and asks nothing.
    timeout = f"-Dmaven.wagon.http.connectionTimeout={CONNECT_S * 1000}"
    process = subprocess.Popen(
        [command[0], "-B", timeout, *command[1:]],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        output = _follow(process, count, progress)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise EngineError(f"Maven cannot get the jars: {_reason(output)}")
    return output


def _follow(process: subprocess.Popen[str], count: int, progress: Callable[[str], None]) -> str:
    assert process.stdout is not None
    lines, copied = [], 0
    for line in process.stdout:
        lines.append(line)
        match = COPYING.search(line)
        if match is not None:
            copied += 1
            progress(f"{copied} of {count} jars: {match[1]}")
        elif line.startswith("Downloading") and line.rstrip().endswith(".jar"):
            progress(f"downloading {line.rstrip().rpartition('/')[2]}")
    process.wait()
    return "".join(lines)


def _copying(artifacts: Sequence[Artifact], directory: Path) -> str:
    items = "\n".join(
        f"<artifactItem><groupId>{a.group}</groupId><artifactId>{a.name}</artifactId>"
        f"<version>{a.version}</version></artifactItem>"
        for a in artifacts
    )
    return f"""\
<plugins><plugin>
{_PLUGIN}
<configuration>
<outputDirectory>{escape(str(directory.absolute()))}</outputDirectory>
<artifactItems>
{items}
</artifactItems>
</configuration>
</plugin></plugins>"""


def _pom(build: str) -> str:
    return f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>nova</groupId><artifactId>engine</artifactId><version>1</version>
<packaging>pom</packaging>
<build>{build}</build>
</project>
"""


def _reason(output: str) -> str:
    """Maven's first error, without its repetitions and references to documentation."""
    for line in output.splitlines():
        if line.startswith("[ERROR] "):
            text = line.removeprefix("[ERROR] ").partition(" -> [Help")[0]
            return re.sub(r"^Failed to execute goal \S+ \(default-cli\) on project \w+: ", "", text)
    last = output.strip().splitlines()
    return last[-1] if last else "it says nothing"


def _check(artifact: Artifact, jar: Path) -> None:
    if not jar.is_file():
        raise EngineError(f"{artifact.coordinates}: Maven has not brought {artifact.file}")
    digest = hashlib.sha256()
    with jar.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != artifact.sha256:
        raise EngineError(
            f"{artifact.coordinates}: checksum {digest.hexdigest()}, expected {artifact.sha256}: "
            f"the download is broken or not the published jar; remove {artifact.repository_path} "
            "in Maven's cache (~/.m2/repository) and try again"
        )
