"""What engines leave on hosts lies where nobody but the SSH user can have put anything."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from loopback_hosts import loopback_inventory, sshds
from needs import skip_or_fail

from nova_engines import results
from nova_harness.engines import deployment
from nova_harness.engines.deployment import EngineDeployment, fetch_results
from nova_testbed.connection import HostError
from nova_testbed.hosts import Hosts, connect


class Sleeper(EngineDeployment):
    """An engine that sleeps, from a file of its own."""

    ENGINE = "Sleep"
    NAME = "sleep"
    PROCESSES: ClassVar[tuple[str, ...]] = ("nova_test_sleep",)
    version = "1"

    def __init__(self, hosts: Hosts, home: Path) -> None:
        super().__init__(hosts)
        self.home = home

    @property
    def home_path(self) -> Path:
        return self.home

    @property
    def runtime_files(self) -> Sequence[Path]:
        return [self.home / "lib" / "sleep.sh"]

    def check(self) -> None:
        pass

    def files(self, name: str) -> dict[str, str]:
        return {"conf/seconds": "1000\n"}

    def commands(self, name: str) -> dict[str, str]:
        script, seconds = f"{self.place(name)}/lib/sleep.sh", f"{self.work(name)}/conf/seconds"
        return {self.PROCESSES[0]: f"exec sh {script} {seconds}"}

    def wait(self, timeout_s: float) -> None:
        pass


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """A host over SSH, whose directories for all are below the test's."""
    for name in ("TEMPORARY", "LASTING"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o1777)
        monkeypatch.setattr(deployment, name, str(tmp_path / name))
    with sshds("one") as running, connect(loopback_inventory(running)) as connected:
        yield connected


@pytest.fixture
def sleeper(hosts: Hosts, tmp_path: Path) -> Iterator[Sleeper]:
    script = tmp_path / "home" / "lib" / "sleep.sh"
    script.parent.mkdir(parents=True)
    script.write_text('exec sleep "$(cat "$1")"\n')
    made = Sleeper(hosts, tmp_path / "home")
    try:
        yield made
    finally:
        made.down()


def test_directories_are_the_users_alone(sleeper: Sleeper, tmp_path: Path) -> None:
    sleeper.up()
    user = sleeper.hosts.inventory.hosts[0].user
    own = [tmp_path / name / f"nova-{user}" for name in ("TEMPORARY", "LASTING")]
    assert [path.stat().st_mode & 0o7777 for path in own] == [0o700, 0o700]
    assert Path(sleeper.work("one")) == own[0] / "sleep"
    assert Path(sleeper.place("one")) == own[1] / "sleep"
    assert [job.name for job in sleeper.jobs()["one"]] == ["nova_test_sleep"]
    # What is there is used again.
    again = Sleeper(sleeper.hosts, sleeper.home)
    again.up()
    assert again.reused
    assert again.down() == ["one"]


@pytest.mark.parametrize("which", ["TEMPORARY", "LASTING"])
@pytest.mark.parametrize("how", ["open", "link", "other's"])
def test_what_another_has_made_is_refused(
    sleeper: Sleeper, tmp_path: Path, which: str, how: str
) -> None:
    user = sleeper.hosts.inventory.hosts[0].user
    trap = tmp_path / which / f"nova-{user}"
    kept = tmp_path / "kept"
    (kept / "sleep" / "lib").mkdir(parents=True)
    precious = kept / "sleep" / "lib" / "sleep.sh"
    precious.write_text("touch ran\n")
    if how == "link":
        trap.symlink_to(kept)
    else:
        kept.rename(trap)
        precious = trap / "sleep" / "lib" / "sleep.sh"
        trap.chmod(0o777)
        if how == "other's":
            if os.geteuid() != 0:
                skip_or_fail("giving a directory to another user needs root")
            trap.chmod(0o700)
            os.chown(trap, 65534, 65534)
    with pytest.raises(HostError, match=r"belongs to someone else|is open to others"):
        sleeper.up()
    # Nothing was removed, replaced or started.
    assert precious.read_text() == "touch ran\n"
    assert sleeper.jobs() == {"one": []}


def test_results_come_with_what_is_beside_them(sleeper: Sleeper, tmp_path: Path) -> None:
    sleeper.up()
    sleeper.prepare_results()
    there = Path(sleeper.result_file("results"))
    for suffix, text in {".job": "x\nx\n", ".end": "2\n", ".other": "", ".1": ""}.items():
        there.with_name(there.name + suffix).write_text(text)
    there.write_bytes(2 * bytes(results.PAIR_BYTES))
    there.with_name(f"{there.name}.fields").write_text(json.dumps(results.PAIR))
    local = tmp_path / "local" / "results.bin"
    local.parent.mkdir()
    fetch_results(sleeper.hosts["one"], str(there), local)
    found = results.read(local)
    assert (len(found), found.announced, found.starts) == (2, 2, 2)
    assert sorted(path.suffix for path in local.parent.iterdir()) == [
        ".bin",
        ".end",
        ".fields",
        ".job",
    ]
    # Without any there is an empty file.
    sleeper.prepare_results()
    fetch_results(sleeper.hosts["one"], str(there), tmp_path / "none")
    assert len(results.read(tmp_path / "none", results.PAIR)) == 0
