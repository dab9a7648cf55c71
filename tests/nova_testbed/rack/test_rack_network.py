from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from nova_testbed.rack import RackError, network
from nova_testbed.rack.state import Names

Taken = list[tuple[ipaddress.IPv4Network, str]]


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Commands that would be run; there are no devices."""
    said: list[str] = []
    monkeypatch.setattr(network, "ip", lambda lines, namespace=None: said.extend(lines))
    monkeypatch.setattr(network, "DEVICES", tmp_path)
    monkeypatch.setattr(network, "NETNS", tmp_path / "netns")
    return said


def use(monkeypatch: pytest.MonkeyPatch, *taken: str) -> None:
    found: Taken = [(ipaddress.IPv4Network(text), f"route to {text} (eth7)") for text in taken]
    monkeypatch.setattr(network, "networks_in_use", lambda: iter(found))


def test_numbers_whose_addresses_are_in_use_are_passed_over(
    claimed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, "198.18.0.0/23", "198.19.2.128/25", "10.0.0.0/8")
    (tmp_path / "novarack3br").mkdir()
    assert network.claim(Path("/state")) == Names(4)
    assert claimed == [
        "link add novarack4br type bridge",
        "link set novarack4br alias /state",
    ]


def test_no_free_number_names_what_is_in_the_way(
    claimed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "198.18.0.0/15")
    with pytest.raises(RackError, match=r"taken for every N.*route to 198\.18\.0\.0/15 \(eth7\)"):
        network.claim(Path("/state"))
    assert claimed == []


def test_a_number_lost_to_somebody_quicker_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch)
    monkeypatch.setattr(network, "DEVICES", tmp_path)
    monkeypatch.setattr(network, "NETNS", tmp_path / "netns")

    def late(lines: list[str], namespace: str | None = None) -> None:
        if "novarack0br type bridge" in lines[0]:
            (tmp_path / "novarack0br").mkdir()
            raise RackError("File exists")

    monkeypatch.setattr(network, "ip", late)
    assert network.claim(Path("/state")) == Names(1)


def test_a_command_that_is_refused_is_named() -> None:
    with pytest.raises(RackError, match=r"ip link show novarack: Device .* does not exist"):
        network.ip(["link show lo", "link show novarack"])


def test_routes_of_this_machine_are_read() -> None:
    """The loopback network is there on every machine."""
    found = dict(network.networks_in_use())
    assert any(ipaddress.IPv4Network("127.0.0.0/8").supernet_of(taken) for taken in found)
