"""What the main job needs of this machine, and how it gets it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from nova_core.errors import NovaError

# Packages for Debian's apt, Fedora's dnf and Arch's pacman. Flink's sources and sink are compiled
# on first use, so a runtime alone does not do.
JDK = ("default-jdk-headless", "java-21-openjdk-devel", "jdk21-openjdk")
RSYNC = ("rsync", "rsync", "rsync")


class MachineError(NovaError):
    """A machine that lacks something."""


@dataclass(frozen=True)
class Lacking:
    """What is missing here.

    Attributes:
        packages: of the system, as its package manager calls them.
        command: that installs them; empty for none.
    """

    packages: tuple[str, ...]
    command: str


def lacking() -> Lacking:
    """What a virtual rack with Flink on it needs and this machine has not.

    Raises:
        MachineError: where no package would help, e.g. without root.
    """
    from nova_testbed.rack import requirements

    found = requirements.capabilities()
    wanted = requirements.packages(found)
    helpless = [
        item
        for item in found
        if item.needed
        and not item.ok
        and not item.name.startswith("program")
        and item.detail != requirements.UNTRIED
    ]
    # Without its programs a machine cannot be tried for the rest.
    if helpless and not wanted:
        raise MachineError(str(requirements.missing(found)))
    if shutil.which("javac") is None:
        wanted.append(JDK)
    if shutil.which("rsync") is None:
        wanted.append(RSYNC)
    command = requirements.package_command(wanted)
    names = command.split(" ") if command else []
    known = {name for row in wanted for name in row}
    return Lacking(tuple(name for name in names if name in known), command)


def install(missing: Lacking, tell: Callable[[str], None]) -> None:
    """Install packages of the system.

    Raises:
        MachineError: when that fails, with the last thing it said.
    """
    command = missing.command
    if "apt-get" in command:
        sudo = "sudo " if command.startswith("sudo ") else ""
        command = f"{sudo}apt-get update -qq && {command}"
    tell(f"installing {' '.join(missing.packages)}")
    done = subprocess.run(
        command,
        shell=True,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode:
        said = (done.stdout.strip() or "nothing").splitlines()[-1].strip()
        raise MachineError(f"`{command}` failed: {said}")
    left = lacking()
    if left.packages:
        raise MachineError(f"still missing after `{command}`: {' '.join(left.packages)}")


__all__ = ["Lacking", "MachineError", "install", "lacking"]
