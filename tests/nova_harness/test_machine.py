"""What the main job needs of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_harness import machine
from nova_harness.machine import MachineError, install, lacking
from nova_testbed.rack import requirements
from nova_testbed.rack.requirements import Capability

ROOT = Capability("root", True, True)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with apt and nothing but the programs put into a directory."""
    monkeypatch.setattr(requirements, "_manager", lambda: (0, "apt-get install -y"))
    monkeypatch.setattr(requirements, "is_root", lambda: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    put(tmp_path, "apt-get", 'echo "$*" >>"$0.log"')
    return tmp_path


def put(directory: Path, program: str, script: str = "") -> None:
    """Make a program."""
    file = directory / program
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def capabilities(monkeypatch: pytest.MonkeyPatch, *found: Capability) -> None:
    """Let the machine be able to do just this."""
    monkeypatch.setattr(requirements, "capabilities", lambda: found)


def test_says_which_packages_are_missing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities(monkeypatch, ROOT, Capability("program sshd", False, True))
    found = lacking()
    assert found.packages == ("openssh-server", "default-jdk-headless", "rsync")
    assert found.command == "apt-get install -y openssh-server default-jdk-headless rsync"


def test_lacks_nothing_where_all_is_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities(monkeypatch, ROOT, Capability("program sshd", True, True))
    put(here, "javac")
    put(here, "rsync")
    assert lacking() == machine.Lacking((), "")


def test_no_package_makes_root(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities(monkeypatch, Capability("root", False, True, "neither root nor sudo", "be root"))
    with pytest.raises(MachineError, match=r"root \(neither root nor sudo\).*be root"):
        lacking()


def test_installs_after_looking_what_there_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities(monkeypatch, ROOT)
    put(here, "rsync")
    told: list[str] = []
    missing = lacking()
    put(here, "javac")  # as the package manager would
    install(missing, told.append)
    assert told == ["installing default-jdk-headless"]
    log = (here / "apt-get.log").read_text().splitlines()
    assert log == ["update -qq", "install -y default-jdk-headless"]


def test_a_package_that_did_not_come_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities(monkeypatch, ROOT)
    put(here, "rsync")
    with pytest.raises(MachineError, match=r"still missing.*default-jdk-headless"):
        install(lacking(), lambda text: None)
    put(here, "apt-get", 'echo "E: no network"; exit 100')
    with pytest.raises(MachineError, match="failed: E: no network"):
        install(lacking(), lambda text: None)
