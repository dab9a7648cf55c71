from __future__ import annotations

import pytest

from nova_testbed.rack import Capability, RackError, capabilities, install_command, missing
from nova_testbed.rack.privileges import as_root


def test_everything_is_tried_and_what_is_missing_has_a_remedy() -> None:
    found = capabilities()
    names = [item.name for item in found]
    assert len(set(names)) == len(names)
    assert {"root", "namespaces", "tun", "overlay", "realtime", "netem", "program sshd"} <= {*names}
    assert all(item.remedy and item.detail for item in found if not item.ok)


def test_without_root_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "nova_testbed.rack.requirements"
    monkeypatch.setattr(f"{module}.is_root", lambda: False)
    monkeypatch.setattr(f"{module}.sudo_works", lambda: False)
    line = missing()
    assert line is not None
    assert line.startswith("no virtual rack here: root (neither root nor sudo without a password)")
    assert "\n" not in line
    assert "namespaces" not in line


def test_one_command_installs_what_is_missing() -> None:
    found = (
        Capability("program sshd", False, True, "not installed"),
        Capability("program ssh", False, True, "not installed"),
        Capability("program tc", False, False, "no netem"),
        Capability("program ip", True, True),
    )
    needed = install_command(found)
    assert "openssh" in needed
    assert "iproute2" not in needed
    assert "iproute2" in install_command(found, optional=True)
    line = missing(found)
    assert line is not None
    assert line.endswith(needed)
    assert install_command(found[3:]) == ""
    assert missing(found[2:]) is None


def test_orders_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_testbed.rack.privileges.sudo_works", lambda: False)
    with pytest.raises(RackError, match="a virtual rack needs root: run as root, or let sudo"):
        as_root("status", {}, tuple)
