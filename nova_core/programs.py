"""Programs of the system that parts of Nova need: checks for them, and commands to install them.

Only this module knows packages. Each purpose has a tuple of names of programs below.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nova_core.errors import NovaError


@dataclass(frozen=True)
class Program:
    """A program, or a header file, that a package of the system brings.

    Attributes:
        name: of the file on the PATH.
        purpose: what it is for.
        apt: the package's name in Debian and Ubuntu.
        dnf: its name in Fedora, if different.
        pacman: its name in Arch, if different.
        others: programs that serve as well.
    """

    name: str
    purpose: str
    apt: str
    dnf: str = ""
    pacman: str = ""
    others: tuple[str, ...] = ()

    @property
    def path(self) -> str | None:
        """Where it is; None where it is not."""
        if self.name == HEADERS:
            header = Path(sysconfig.get_path("include"), HEADERS)
            return str(header) if header.is_file() else None
        # A user's PATH may lack the directories of programs for root.
        places = [None, "/usr/sbin:/sbin"]
        if self.name in JAVA and (java_home := os.environ.get("JAVA_HOME")):
            places.insert(0, f"{java_home}/bin")
        for name in (self.name, *self.others):
            for place in places:
                if executable := shutil.which(name, path=place):
                    return executable
        return None

    @property
    def on_debian(self) -> str:
        """Command that installs it on a host; assumes Debian or a derivative."""
        return f"apt-get install -y {self.apt}"

    @property
    def missing(self) -> str:
        """Error text: it is missing, and the command that installs it."""
        return f"{self.name}: not found; `{install_command([self])}` (for {self.purpose})"


HEADERS = "Python.h"
JAVA = ("java", "javac")
_JDK = ("default-jdk-headless", "java-21-openjdk-devel", "jdk21-openjdk")
# A row per program: its name, its purpose and its packages.
PROGRAMS = {
    row[0]: Program(*row)
    for row in (
        ("sshd", "virtual hosts", "openssh-server", "", "openssh"),
        ("ssh", "virtual hosts", "openssh-client", "openssh-clients", "openssh"),
        ("ip", "virtual hosts", "iproute2", "iproute"),
        ("tc", "delays in the kernel", "iproute2", "iproute-tc"),
        ("bridge", "virtual hosts", "iproute2", "iproute"),
        ("unshare", "virtual hosts", "util-linux"),
        ("nsenter", "virtual hosts", "util-linux"),
        ("setpriv", "virtual hosts", "util-linux"),
        ("nft", "keeping other users from virtual hosts", "nftables"),
        ("setsid", "background jobs", "util-linux"),
        ("cc", "the switch between virtual hosts", "gcc libc6-dev", "gcc", "gcc", ("gcc", "clang")),
        ("tar", "copying files", "tar"),
        ("python3", "measuring", "python3", "", "python"),
        ("rsync", "copying many files", "rsync"),
        ("stress-ng", "artificial load", "stress-ng"),
        ("chronyc", "synchronised clocks", "chrony"),
        ("java", "Flink, Storm, Spark and Kafka", *_JDK),
        ("javac", "Flink, Storm and Spark", *_JDK),
        ("mvn", "Storm and Kafka", "maven"),
        ("c++", "the index annoy", "g++", "gcc-c++", "gcc", ("g++", "clang++")),
        (HEADERS, "the index annoy", "python3-dev", "python3-devel", "python"),
        ("git", "fresh clones", "git"),
        ("curl", "examples in the documentation", "curl"),
        ("fish", "hosts with other login shells", "fish"),
        ("tcsh", "hosts with other login shells", "tcsh"),
        (
            "chromium",
            "reports in a browser",
            "chromium",
            "",
            "",
            ("chromium-browser", "google-chrome"),
        ),
    )
}
# Programs that virtual hosts need, and those that improve them.
RACK = ("sshd", "ssh", "ip", "bridge", "unshare", "nsenter", "setpriv", "cc")
RACK_PROFITS = ("tc", "nft")
DEMO = (*RACK, *RACK_PROFITS, "javac", "rsync")
TESTS = (*DEMO, "stress-ng", "mvn", "c++", HEADERS, "git", "curl", "chromium", "fish", "tcsh")

_MANAGERS = (
    ("apt-get", "apt-get install -y --no-install-recommends"),
    ("dnf", "dnf install -y"),
    ("pacman", "pacman -S --noconfirm"),
)


def absent(names: Iterable[str]) -> list[Program]:
    """Those of the named programs that are not on this machine."""
    return [PROGRAMS[name] for name in names if PROGRAMS[name].path is None]


def packages(programs: Iterable[Program]) -> list[str]:
    """The packages that bring programs, as this machine's package manager calls them."""
    manager = _manager()[0]
    names = (getattr(program, manager) or program.apt for program in programs)
    return list(dict.fromkeys(name for each in names for name in each.split()))


def install_command(programs: Iterable[Program]) -> str:
    """The one command that installs programs; empty for none."""
    names = packages(programs)
    if not names:
        return ""
    prefix = "" if os.geteuid() == 0 else "sudo "
    return f"{prefix}{_manager()[1]} {' '.join(names)}"


def install(programs: list[Program], progress: Callable[[str], None]) -> None:
    """Install programs with the system's package manager.

    Args:
        programs: the missing ones.
        progress: called with a line that names the packages.

    Raises:
        NovaError: when that fails, with the last line that the package manager printed.
    """
    command = install_command(programs)
    if not command:
        return
    if _manager()[0] == "apt":
        sudo = "sudo " if command.startswith("sudo ") else ""
        command = f"{sudo}apt-get update -qq && {command}"
    progress(f"installing {' '.join(packages(programs))}")
    process = subprocess.run(
        command,
        shell=True,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )
    if process.returncode:
        last = (process.stdout.strip() or "no output").splitlines()[-1].strip()
        raise NovaError(f"`{command}` failed: {last}")
    left = [program.name for program in programs if program.path is None]
    if left:
        raise NovaError(f"still missing after `{command}`: {', '.join(left)}")


@cache
def _manager() -> tuple[str, str]:
    """The field of `Program` with the packages' names, and the command before them."""
    for program, command in _MANAGERS:
        if shutil.which(program) or shutil.which(program, path="/usr/bin"):
            return program.removesuffix("-get"), command
    return "apt", "install with your package manager:"
