"""What is taken for a part of a rack, and what only has the name of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from needs import skip_or_fail

from nova_testbed.rack import cleanup, network
from nova_testbed.rack.state import PREFIX, RackError, RackRecord

# Of no rack that can be up.
NUMBER = 253


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid():
        skip_or_fail("racks are removed by root")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to which everybody may write, as /var/tmp."""
    monkeypatch.setattr(cleanup, "OUTSIDE", (tmp_path,))
    return tmp_path


def test_names_that_anybody_can_make_are_no_disks(outside: Path) -> None:
    keep = outside / "keep"
    keep.mkdir()
    (keep / "file").touch()
    (outside / f"{PREFIX}1").touch()
    (outside / f"{PREFIX}2").symlink_to(keep)
    foreign = outside / f"{PREFIX}{NUMBER}"
    foreign.mkdir()
    os.chown(foreign, 65534, 65534)
    (outside / f"{PREFIX}9 and more\n").mkdir()
    (outside / f"{PREFIX}7").mkdir()
    assert cleanup._outside_disks(None) == [outside / f"{PREFIX}7"]
    cleanup.remove(NUMBER, None)
    assert foreign.is_dir()
    assert (keep / "file").exists()
    os.chown(foreign, 0, 0)
    cleanup.remove(NUMBER, None)
    assert not foreign.exists()


def test_a_packet_filter_that_cannot_be_asked_for_is_told(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(guarded: bool) -> RackRecord:
        return RackRecord("r", NUMBER, "switch", str(outside / "disks"), True, (), (), guarded)

    def run(command: list[str], text: str = "") -> None:
        raise FileNotFoundError(2, "No such file or directory", "nft")

    real = network._run
    monkeypatch.setattr(network, "_run", lambda c, *a: run(c, *a) if c[0] == "nft" else real(c, *a))
    with pytest.raises(RackError, match=rf"table ip {PREFIX}{NUMBER} \(nft: No such file.*install"):
        cleanup.remove(NUMBER, None, record(guarded=True))
    cleanup.remove(NUMBER, None, record(guarded=False))


def test_a_number_is_free_when_nothing_is_left(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the parts of the rack that takes it would count as left."""
    did: list[str] = []

    def left(number: int) -> tuple[cleanup.Leftover, ...]:
        did.append("looked")
        return (cleanup.Leftover("device", f"{PREFIX}{number}br"),)

    def release(number: int) -> bool:
        did.append("released")
        return True

    monkeypatch.setattr(cleanup, "leftovers", left)
    monkeypatch.setattr(network, "release", release)
    cleanup.remove(NUMBER, None)
    assert did == ["looked", "released"]
