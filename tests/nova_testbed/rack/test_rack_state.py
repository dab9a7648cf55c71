from __future__ import annotations

import stat
from pathlib import Path

import pytest

from nova_testbed.inventory import HostSpec, Inventory, Link
from nova_testbed.rack import RackError, VirtualRack
from nova_testbed.rack.state import (
    MOST_HOSTS,
    MOST_RACKS,
    Names,
    RackRecord,
    StateDirectory,
    locked,
    record_of,
    replace,
)
from nova_testbed.rack.virtual_host import hidden_and_shown


def inventory(*names: str, virtual: bool = True, **links: float) -> Inventory:
    pairs = {(a, b): Link(rtt) for (a, b), rtt in zip([names[:2]], links.values(), strict=False)}
    return Inventory("some", tuple(HostSpec(name) for name in names), pairs, virtual)


def record(*names: str) -> RackRecord:
    return record_of(inventory(*names), 3, "switch", Path("/disks"))


def test_names_fit_in_what_the_kernel_allows() -> None:
    names = Names(MOST_RACKS - 1)
    assert max(len(names.bridge), len(names.port(MOST_HOSTS - 1))) <= 15
    last = names.data(MOST_HOSTS - 1)
    assert int(last.rsplit(".", 1)[1]) < 255
    assert names.controller not in {names.management(i) for i in range(MOST_HOSTS)}


def test_records_survive_being_written(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "rack")
    assert state.read() is None
    state.create()
    made = record("a", "b").with_link("b", "a", Link(7.0, 1.0, 20.0, 0.5))
    state.write(made)
    assert state.read() == made
    assert stat.S_IMODE(state.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(state.record_file.stat().st_mode) == 0o600


def test_links_are_kept_per_pair_in_the_order_of_hosts() -> None:
    changed = record("a", "b", "c").with_link("c", "a", Link(5.0)).with_link("a", "c", Link(6.0))
    assert list(changed.pairs()) == [(0, 1, Link()), (0, 2, Link(6.0)), (1, 2, Link())]
    with pytest.raises(RackError, match="no host 'd'; there are a, b, c"):
        changed.with_link("a", "d", Link())
    with pytest.raises(RackError, match="two hosts, not a twice"):
        changed.with_link("a", "a", Link())


def test_what_no_rack_can_follow_is_refused() -> None:
    with pytest.raises(RackError, match="its hosts are real"):
        record_of(inventory("a", virtual=False), 0, "switch", Path("/"))
    with pytest.raises(RackError, match="0 hosts; a virtual rack has 1 to 250"):
        record_of(inventory(), 0, "switch", Path("/"))
    for name in ("a_b", "../x", "-a", "a" * 64, "a b"):
        with pytest.raises(RackError, match="letters, digits and hyphens"):
            record(name)


def test_a_record_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.record_file.write_text('{"name": 3}')
    with pytest.raises(RackError, match=r"rack\.json: .*nova testbed clean"):
        state.read()


@pytest.mark.parametrize("path", ["/a b", "/a,b", "/a:b", "/" + "a" * 200])
def test_directories_that_cannot_be_mount_options_are_refused(path: str) -> None:
    with pytest.raises(RackError, match="at most 200 characters, without"):
        VirtualRack(inventory("a"), Path(path))


def test_only_a_racks_own_files_are_removed(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "rack")
    state.create()
    state.write(record("a"))
    (state.path / "disks" / "a").mkdir(parents=True)
    assert state.is_ours()
    (state.path / "thesis.tex").write_text("years of work")
    assert not state.is_ours()
    state.remove()
    assert [entry.name for entry in state.path.iterdir()] == ["thesis.tex"]
    (state.path / "thesis.tex").unlink()
    state.remove()
    assert not state.path.exists()


def test_one_command_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_testbed.rack.state.LOCK_SECONDS", 0.1)
    with locked(tmp_path), pytest.raises(RackError, match="another command"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_state_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RackError, match="Not a directory"):
        StateDirectory(tmp_path / "file" / "rack").create()


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    replace(tmp_path / "f", "one")
    replace(tmp_path / "f", b"two", mode=0o644)
    assert (tmp_path / "f").read_text() == "two"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_what_hosts_are_shown_of_directories_that_are_not_for_everybody(tmp_path: Path) -> None:
    """Nobody but their owners may enter them; hosts have a user of their own."""
    # Where pytest's own directory is below a closed one, that one is hidden.
    closed = next((path for path in reversed(tmp_path.parents) if _closed(path)), None)
    home, other = tmp_path / "home", tmp_path / "opened"
    for path in (home / "me/.local/nova/engines", home / "me/code/.venv", other / "x"):
        path.mkdir(parents=True)
    (home / "me").chmod(0o700)
    needed = [home / "me/.local/nova", home / "me/.local/nova/engines", home / "me/code", other]
    hidden, shown = hidden_and_shown([*needed, home / "missing"])
    assert hidden == sorted(["/root", str(closed or home / "me")])
    # What lies below another one comes with it; all is below /tmp, of which each host has its own.
    assert shown == sorted(str(path) for path in (needed[0], needed[2], other))
    assert hidden_and_shown([Path("/usr/share")]) == (["/root"], [])


def _closed(path: Path) -> bool:
    return not path.stat().st_mode & stat.S_IXOTH
