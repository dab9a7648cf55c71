"""``nova setup``: what the demo and the tests need of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_core import programs
from nova_core.errors import NovaError
from nova_harness.commands import setup
from nova_harness.commands.setup import NEEDS, Needs, prepare
from nova_testbed.rack import privileges, requirements
from nova_testbed.rack.requirements import Capability

NO_ROOT = (Capability("root", False, True, "neither root nor sudo", "be root"),)


class Machine:
    """A machine with apt, root, no programs and engines that only note that they were installed."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.monkeypatch = monkeypatch
        self.engines: list[str] = []
        self.said: list[str] = []
        self.put("apt-get", 'echo "$*" >>"$0.log"')
        monkeypatch.setenv("PATH", str(directory))
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setattr(programs, "_manager", lambda: ("apt", "apt-get install -y"))
        monkeypatch.setattr(privileges, "sudo_works", lambda: False)
        monkeypatch.setattr(setup.console, "say", self.said.append)
        monkeypatch.setattr("nova_core.engines.load", self.load)
        self.can(Capability("root", True, True), root=True)

    def put(self, program: str, script: str = "") -> None:
        file = self.directory / program
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def can(self, *found: Capability, root: bool) -> None:
        self.monkeypatch.setattr(requirements, "capabilities", lambda: found)
        self.monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)

    def load(self, name: str) -> object:
        machine = self

        class Engine:
            def install(self, progress: object) -> None:
                if name == "storm":
                    raise NovaError("Storm needs Maven")
                machine.engines.append(name)

        return Engine()

    @property
    def installed(self) -> str:
        log = self.directory / "apt-get.log"
        return log.read_text().splitlines()[-1] if log.exists() else ""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_tests_need_all_that_the_demo_needs() -> None:
    assert set(NEEDS["demo"].programs) < set(NEEDS["test"].programs) <= set(programs.PROGRAMS)
    assert set(NEEDS["demo"].engines) < set(NEEDS["test"].engines)


def test_packages_come_before_engines(machine: Machine) -> None:
    # A package manager that brings what it is asked for.
    machine.put("apt-get", f'echo "$*" >>"$0.log"; /usr/bin/touch {machine.directory}/mvn')
    (machine.directory / "mvn").touch()
    (machine.directory / "mvn").chmod(0o755)
    (machine.directory / "mvn").rename(machine.directory / "rsync")
    prepare(Needs(("rsync",), ("flink",)), yes=True)
    assert (machine.installed, machine.engines) == ("", ["flink"])
    with pytest.raises(NovaError, match="still missing"):
        prepare(Needs(("rsync", "stress-ng"), ("flink",)), yes=True)
    assert machine.installed == "install -y stress-ng"


def test_nothing_is_installed_unasked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = Needs(("mvn",), ())
    with pytest.raises(NovaError, match=r"missing: maven; run `apt-get install -y maven`, or call"):
        prepare(needs, yes=False)
    assert machine.installed == ""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(NovaError, match="still missing"):
        prepare(needs, yes=False)
    assert machine.installed == "install -y maven"


def test_the_demo_needs_everything(machine: Machine) -> None:
    machine.can(*NO_ROOT, root=False)
    with pytest.raises(NovaError, match=r"missing: maven; run `sudo .* neither root nor sudo"):
        prepare(Needs(("mvn",), ()), yes=True)
    with pytest.raises(NovaError, match=r"no virtual rack here: root \(neither root nor sudo\)"):
        prepare(Needs((), ()), yes=True)
    machine.can(Capability("root", True, True), root=True)
    with pytest.raises(NovaError, match="Storm needs Maven"):
        prepare(Needs((), ("storm",)), yes=True)


def test_tests_that_cannot_run_are_named_and_the_rest_goes_on(machine: Machine) -> None:
    machine.can(*NO_ROOT, root=False)
    prepare(Needs(("mvn",), ("storm", "flink")), yes=True, partly=True)
    assert machine.engines == ["flink"]
    assert machine.installed == ""
    loud = [line for line in machine.said if line.startswith("THE TESTS OF ")]
    assert [line.partition(" ARE LEFT OUT: ")[0] for line in loud] == [
        "THE TESTS OF VIRTUAL HOSTS",
        "THE TESTS OF STORM AND KAFKA",
        "THE TESTS OF STORM",
    ]
