from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from nova_core.errors import NovaError
from nova_engines.nodes import MB, Node
from nova_spark.configuration import ClusterConfiguration
from nova_spark.local_cluster import LocalCluster

HUB = Node("hub.x", "10.0.0.1", role="coordinator")


def cluster(*nodes: Node, **options: object) -> ClusterConfiguration:
    return ClusterConfiguration(nodes, "/opt/spark home", **options)  # type: ignore[arg-type]


def test_what_starts_workers_and_the_master() -> None:
    made = cluster(HUB, Node("edge", "10.0.0.2", 4096 * MB), slots=2, work_directory="/w d")
    for node, heap in zip(made.nodes, (512, 2048), strict=True):
        words = shlex.split(made.worker_command(node))
        assert words[:3] == ["mkdir", "-p", "/w d/tmp"]
        assert "/opt/spark home/bin/spark-class" in words
        assert words[words.index("--memory") + 1] == f"{heap}m"
        assert words[words.index("--cores") + 1] == "2"
        assert words[-1] == "spark://10.0.0.1:7077"
        assert f"SPARK_LOCAL_IP={node.address}" in words
    assert made.heaps == {"hub.x": 512, "edge": 2048}
    assert shlex.split(made.master_command(HUB))[-1] == "8080"


@pytest.mark.parametrize(
    ("nodes", "options", "complaint"),
    [
        ([], {}, "exactly one must be the coordinator, found none"),
        ([HUB, HUB], {}, r"found hub\.x, hub\.x"),
        ([HUB, Node("a", "1"), Node("a", "2")], {}, "'a' is there twice"),
        ([HUB, Node("a", "")], {}, "host a: address is missing"),
        ([HUB, Node("a", "fd00::1")], {}, "host a: address 'fd00::1': .* or an IPv4 address"),
        ([HUB, Node("a", "1", 900 * MB)], {}, "900 MiB is too little for a Worker .* 1136 MiB"),
        ([HUB], {"slots": 0}, "slots: 0: expected 1 or more"),
        ([HUB], {"work_directory": "w"}, "work_directory: 'w': expected an absolute path"),
    ],
)
def test_hosts_that_cannot_be(
    nodes: list[Node], options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(NovaError, match=complaint):
        cluster(*nodes, **options)


def test_the_least_memory_that_is_named_suffices() -> None:
    assert cluster(HUB, Node("a", "1", 1136 * MB)).heaps["a"] == 512


def test_only_the_coordinator_has_a_master() -> None:
    edge = Node("edge", "10.0.0.2")
    with pytest.raises(NovaError, match="edge is not the coordinator"):
        cluster(HUB, edge).master_command(edge)


def test_a_cluster_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    broken = home / "bin" / "spark-class"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    with (
        pytest.raises(NovaError, match="ended with code 3: out of order"),
        LocalCluster(["a"], tmp_path / "work", python="python3"),
    ):
        pass
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(NovaError, match=r"SPARK_HOME .*: holds no bin/spark-class"):
        LocalCluster(["a"], tmp_path / "work", python="python3")
