from __future__ import annotations

import gzip
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from nova_testbed.inventory import (
    Inventory,
    InventoryError,
    InventoryWarning,
    Link,
    example_inventory,
    read_inventory,
)


def document(**changes: Any) -> dict[str, Any]:
    """A small good inventory of real hosts, with some top-level fields changed."""
    return {
        "inventory": 1,
        "name": "small",
        "hosts": [
            {"name": "a", "role": "sink", "address": "10.0.0.1"},
            {"name": "b", "role": "source", "address": "10.0.0.2", "cpu": 0.5, "memory": "1 GiB"},
            {"name": "c", "role": "worker", "address": "pi.local", "user": "pi", "port": 2222},
        ],
    } | changes


def read(directory: Path, content: dict[str, Any]) -> Inventory:
    path = directory / "inventory.yaml"
    path.write_text(yaml.safe_dump(content))
    return read_inventory(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("")
    links = [
        {"between": ["c", "a"], "rtt_ms": 20, "jitter_ms": 2, "bandwidth_mbit": 5},
        {"between": ["b", "c"], "loss_percent": 1},
    ]
    found = read(
        tmp_path,
        document(
            defaults={"user": "me", "key": "key", "device": "eth0"},
            network={"rtt_ms": 8, "jitter_ms": 1, "bandwidth_mbit": 100, "links": links},
            stress={"roles": ["source"], "hosts": ["c"], "memory_percent": 50},
        ),
    )
    a, b, c = found.hosts
    assert (a.user, a.port, a.address, a.cpu, a.memory) == ("me", 22, "10.0.0.1", None, None)
    assert (b.cpu, b.memory, b.role, b.device) == (0.5, 1 << 30, "source", "eth0")
    assert (c.user, c.port) == ("pi", 2222)
    assert a.key_file == tmp_path / "key"
    assert found.link("a", "c") == found.link("c", "a") == Link(20, 2, 5, 0)
    assert found.link("c", "b") == Link(8, 1, 100, 1)
    assert found.link("a", "b") == Link(8, 1, 100, 0)
    assert found.rtt().tolist() == [[0, 8, 20], [8, 0, 8], [20, 8, 0]]
    assert found.stress.hosts == ("b", "c")
    assert (found.stress.cpu_percent, found.stress.memory_percent) == (100, 50)
    assert [host.name for host in found.with_role("worker")] == ["c"]


def test_the_virtual_rack_that_comes_with_nova() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InventoryWarning)  # of a machine with one core
        found = read_inventory("virtual-14")
    assert found.virtual and found.name == "virtual-14"
    assert len(found.with_role("sink")) == 1
    assert len(found.with_role("source")) == 8
    assert len(found.with_role("worker")) == 5
    assert 1 < sum(host.cpu or 9 for host in found.hosts) <= 1.4
    assert len({host.cpu for host in found.hosts}) > 5
    rtt = found.rtt()[np.triu_indices(14, 1)]
    assert rtt.min() > 1 and 50 < np.median(rtt) < 250
    assert found.stress.hosts == tuple(f"source{i}" for i in range(1, 9))


def test_the_example_is_good_once_it_is_changed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("")
    path = tmp_path / "pis.yaml"
    path.write_text(example_inventory().read_text().replace("~/.ssh/nova-testbed ", "key "))
    found = read_inventory(path)
    assert len(found.hosts) == 14
    assert found.link("pi10", "pi01") == Link(12.5, 0.5)
    assert all(link.rtt_ms > 0 for _, _, link in found.pairs())


# --- latencies from a file -----------------------------------------------------------------------


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Six nodes; n0 has no measurements to n1."""
    values = np.arange(36.0).reshape(6, 6) + 10
    np.fill_diagonal(values, 0)
    values = (values + values.T) / 2
    rows = [",".join("" if (i, j) in ((0, 1), (1, 0)) else f"{values[i, j]}" for j in range(6))
            for i in range(6)]  # fmt: skip
    path = tmp_path / "rtt.csv.gz"
    path.write_bytes(
        gzip.compress("\n".join([",".join(f"n{i}" for i in range(6)), *rows]).encode())
    )
    return path


def hosts_on(*nodes: str) -> list[dict[str, Any]]:
    return [
        {"name": f"h{i}", "role": "worker" if i else "sink", "address": f"10.0.0.{i}", "node": node}
        for i, node in enumerate(nodes)
    ]


def test_latencies_by_the_names_in_a_file(tmp_path: Path, matrix: Path) -> None:
    content = document(hosts=hosts_on("n4", "n2", "n0"), network={"file": matrix.name})
    found = read(tmp_path, content)
    assert found.link("h0", "h1").rtt_ms == (10 + 6 * 2 + 4 + 10 + 6 * 4 + 2) / 2
    assert found.link("h2", "h1").rtt_ms == (10 + 2 + 10 + 12) / 2


def test_latencies_drawn_from_a_file(tmp_path: Path, matrix: Path) -> None:
    network = {"file": str(matrix), "sample": {"seed": 5}}
    hosts = [{k: v for k, v in row.items() if k != "node"} for row in hosts_on(*"abcde")]
    found = read(tmp_path, document(hosts=hosts, network=network))
    assert (
        found.rtt().tolist()
        == read(tmp_path, document(hosts=hosts, network=network)).rtt().tolist()
    )
    others = [
        read(tmp_path, document(hosts=hosts, network={"file": str(matrix), "sample": {"seed": s}}))
        for s in range(8)
    ]
    assert len({str(other.rtt()) for other in others}) > 3
    assert all((other.rtt() + np.eye(5) > 0).all() for other in others)


def test_latencies_of_a_part_of_the_world(tmp_path: Path) -> None:
    def median(*continents: str) -> float:
        hosts = [{k: v for k, v in row.items() if k != "node"} for row in hosts_on(*("x" * 30))]
        part = {"generate": {"seed": 1, "continents": list(continents)}}
        return float(np.median(read(tmp_path, document(hosts=hosts, network=part)).rtt()))

    assert median("europe") < 0.5 * median()


# --- bad inventories -----------------------------------------------------------------------------

A, B, C = document()["hosts"]
BAD: list[tuple[dict[str, Any], str]] = [
    (document(inventory=2), "inventory: format version 2; 1 is read here"),
    (document(nmae="x"), "unknown field 'nmae'; did you mean 'name'?"),
    (document(name="No Name"), "name: 'No Name' is not accepted; lower-case letters"),
    (document(hosts=[]), "hosts: empty; at least one"),
    (document(hosts=[A, B | {"role": "wroker"}]), "hosts[1].role: 'wroker' is not accepted;"),
    (document(hosts=[A, B | {"name": "a"}]), "hosts[1].name: 'a' is also the name of hosts[0]"),
    (document(hosts=[A, B | {"name": "-x;rm"}]), "hosts[1].name: '-x;rm' is not accepted"),
    (
        document(hosts=[A, B | {"address": "10.0.0.1"}]),
        "hosts[1].address: '10.0.0.1:22' is also the address of hosts[0]",
    ),
    (document(hosts=[A, B | {"address": "x y"}]), "hosts[1] (b).address: 'x y' is not accepted"),
    (document(hosts=[A, B | {"user": "-o x"}]), "hosts[1] (b).user: '-o x' is not accepted"),
    (document(hosts=[A, B | {"device": "e;x"}]), "hosts[1] (b).device: 'e;x' is not accepted"),
    (document(hosts=[A, {"name": "b", "role": "worker"}]), "[1] (b): field 'address' is missing"),
    (document(hosts=[A, B | {"cpu": 0.01}]), "hosts[1].cpu: 0.01 is not accepted"),
    (document(hosts=[A, B | {"memory": "1 GB!"}]), "hosts[1] (b).memory: '1 GB!' is not accepted"),
    (document(hosts=[A, B | {"memory": -1}]), "hosts[1].memory: -1 is not accepted"),
    (document(hosts=[A, B | {"port": 0}]), "hosts[1].port: 0 is not accepted"),
    (document(hosts=[A, B | {"key": "none"}]), "hosts[1] (b).key: 'none': no such file"),
    (document(hosts=[A | {"role": "worker"}, B]), "hosts: 0 have the role sink; exactly one"),
    (document(hosts=[A, B | {"role": "sink"}]), "hosts: 2 have the role sink: a, b; exactly one"),
    (document(virtual=True), "hosts[0] (a).address: '10.0.0.1' is not accepted; a virtual host"),
    (document(hosts=[A, B | {"node": "n1"}]), "hosts[1] (b).node: 'n1' is accepted only with"),
    (document(network={"rtt_ms": -1}), "network.rtt_ms: -1 is not accepted"),
    (document(network={"loss_percent": 101}), "network.loss_percent: 101 is not accepted"),
    (document(network={"bandwidth_mbit": math.inf}), "network.bandwidth_mbit"),
    (document(defaults={"cpu": math.inf}), "defaults.cpu"),
    (document(network={"bandwidth_mbit": 0}), "network.bandwidth_mbit: 0 is not accepted"),
    (document(network={"generate": {"seed": 1}, "file": "x"}), "both 'generate' and 'file'"),
    (document(network={"generate": {"seed": 1}, "rtt_ms": 5}), "network.rtt_ms: 5 is not accepted"),
    (document(network={"generate": {}}), "network.generate: field 'seed' is missing"),
    (
        document(network={"generate": {"seed": 1, "continents": ["mars"]}}),
        "continents[0]: 'mars' is not accepted; one of",
    ),
    (document(network={"sample": {"seed": 1}}), "network.sample: accepted only with"),
    (document(network={"file": "none.csv"}), "network.file: "),
    (
        document(network={"links": [{"between": ["a", "x"]}]}),
        "network.links[0].between: unknown host 'x'; accepted are a, b, c",
    ),
    (document(network={"links": [{"between": ["a", "a"]}]}), "links[0].between: 'a' twice"),
    (
        document(network={"links": [{"between": ["a", "b"]}, {"between": ["b", "a"]}]}),
        "network.links[1].between: 'a' and 'b' are given twice",
    ),
    (
        document(network={"links": [{"between": ["a", "b"], "rtt_ms": 4, "jitter_ms": 3}]}),
        "network.links[0].jitter_ms: 3 is not accepted; at most half",
    ),
    (document(stress={"hosts": ["x"]}), "stress.hosts[0]: unknown host 'x'"),
    (document(stress={"memory_percent": 99}), "stress.memory_percent: 99 is not accepted"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_inventories(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    with pytest.raises(InventoryError) as raised:
        read(tmp_path, content)
    text = str(raised.value)
    assert text.startswith(f"{tmp_path}/inventory.yaml: ")
    assert message in text
    assert "\n" not in text


def test_nodes_that_a_file_does_not_have(tmp_path: Path, matrix: Path) -> None:
    network: dict[str, Any] = {"file": str(matrix)}
    for nodes, message in (
        (("n2", "n9"), "no measurements of node 'n9'"),
        (("n2", "n2"), "two of them have node 'n2'"),
        (("n0", "n1"), "'n0'"),
    ):
        with pytest.raises(InventoryError, match=message):
            read(tmp_path, document(hosts=hosts_on(*nodes), network=network))
    hosts = [{k: v for k, v in row.items() if k != "node"} for row in hosts_on(*"abcdef")]
    network["sample"] = {"seed": 1}
    with pytest.raises(InventoryError, match="5 nodes with latencies to one another; 6 hosts"):
        read(tmp_path, document(hosts=hosts, network=network))


def test_names_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="'virtual-15': no such file, nor one that comes with"):
        read_inventory("virtual-15")
    with pytest.raises(InventoryError, match="cannot be read"):
        read_inventory(tmp_path / "none.yaml")
    with pytest.raises(InventoryError, match=r"is a \.yaml or \.json file"):
        read_inventory(tmp_path / "none.txt")


def test_more_than_this_machine_has_is_a_warning(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    hosts = [
        {"name": "a", "role": "sink", "cpu": cores, "memory": "4096 GiB"},
        {"name": "b", "role": "source", "cpu": 0.25},
    ]
    content = document(hosts=hosts, virtual=True)
    with pytest.warns(InventoryWarning) as caught:
        read(tmp_path, content)
    texts = [str(warning.message) for warning in caught]
    assert f"sum to {cores + 0.25:g} cores; this machine has {cores}" in texts[0]
    assert "memory limits sum to 4096.0 GiB" in texts[1]


def test_unknown_hosts_of_an_inventory(tmp_path: Path) -> None:
    found = read(tmp_path, document())
    with pytest.raises(InventoryError, match="inventory small: unknown host 'd'"):
        found.link("a", "d")
    assert found.link("a", "b") == Link()
