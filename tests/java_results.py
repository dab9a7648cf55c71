"""Nova's classes that write results, and what drives them, compiled without an engine."""

from __future__ import annotations

import subprocess
from importlib.resources import files
from pathlib import Path

from needs import skip_or_fail

from nova_core.errors import NovaError
from nova_engines.compiling import compiler, sources

DRIVERS = Path(__file__).parent / "nova_engines" / "java"


def compiled(directory: Path, driver: str) -> Path:
    """The directory, with the classes that all engines share, and one that has a main method."""
    shared = sources(Path(str(files("nova_engines"))) / "java")
    try:
        javac = compiler()
    except NovaError as error:
        skip_or_fail(str(error))
    own = DRIVERS / f"{driver}.java"
    command = [javac, "-J-XX:TieredStopAtLevel=1", "--release", "11", "-d", str(directory)]
    subprocess.run([*command, *map(str, shared), str(own)], check=True)
    return directory
