"""Programs of the system, and the packages that bring them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_core import programs
from nova_core.errors import NovaError
from nova_core.programs import PROGRAMS, absent, install, install_command, packages


def put(directory: Path, program: str, script: str = "") -> None:
    """Make a program."""
    directory.mkdir(exist_ok=True)
    file = directory / program
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with apt and nothing but the programs put into a directory."""
    monkeypatch.setattr(
        programs, "_manager", lambda: ("apt", "apt-get install -y --no-install-recommends")
    )
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    put(tmp_path, "apt-get", 'echo "$*" >>"$0.log"')
    return tmp_path


def test_what_is_absent_is_named_with_its_packages(here: Path) -> None:
    put(here, "rsync")
    found = absent(("rsync", "javac", "mvn", "stress-ng"))
    assert [program.name for program in found] == ["javac", "mvn", "stress-ng"]
    assert packages(found) == ["default-jdk-headless", "maven", "stress-ng"]
    assert install_command(found).endswith(" default-jdk-headless maven stress-ng")
    assert "`apt-get install" in found[1].missing
    assert install_command([]) == ""


def test_another_program_may_serve_and_java_home_counts(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here, "clang")
    assert PROGRAMS["cc"].path == str(here / "clang")
    put(here / "bin", "javac")
    assert PROGRAMS["javac"].path is None
    monkeypatch.setenv("JAVA_HOME", str(here))
    assert PROGRAMS["javac"].path == str(here / "bin" / "javac")


def test_a_package_brings_several_programs_once(here: Path) -> None:
    found = [PROGRAMS[name] for name in ("java", "javac", "ip", "cc")]
    assert packages(found) == ["default-jdk-headless", "iproute2", "gcc", "libc6-dev"]


def test_other_systems_have_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_manager", lambda: ("pacman", "pacman -S --noconfirm"))
    assert packages([PROGRAMS["sshd"], PROGRAMS["rsync"]]) == ["openssh", "rsync"]


def test_installs_after_looking_what_there_is(here: Path) -> None:
    told: list[str] = []
    missing = absent(("mvn",))
    put(here, "mvn")  # as the package manager would
    install(missing, told.append)
    assert told == ["installing maven"]
    log = (here / "apt-get.log").read_text().splitlines()
    assert log == ["update -qq", "install -y --no-install-recommends maven"]


def test_a_package_that_did_not_come_is_named(here: Path) -> None:
    with pytest.raises(NovaError, match=r"still missing after .*: mvn$"):
        install(absent(("mvn",)), lambda text: None)
    put(here, "apt-get", 'echo "E: no network"; exit 100')
    with pytest.raises(NovaError, match=r"failed: E: no network$"):
        install(absent(("mvn",)), lambda text: None)
