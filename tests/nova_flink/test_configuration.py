"""What hosts are given: memory within their limit, names, ports, the start commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_engines.nodes import COORDINATOR, MB, ConfigurationError, Node, write_files
from nova_flink import names
from nova_flink.configuration import (
    MANAGER_HEAP,
    MANAGER_OTHERS,
    QUICK_COMPILER,
    ClusterConfiguration,
)

SINK = Node("sink", "10.0.0.1", role=COORDINATOR)
EDGE = Node("edge", "10.0.0.2", memory=384 * MB, cpu=0.05)


def cluster(*nodes: Node, **changes: Any) -> ClusterConfiguration:
    return ClusterConfiguration(nodes or (SINK, EDGE), "/opt/flink", **changes)


def keys(configuration: ClusterConfiguration, node: Node) -> dict[str, object]:
    document = yaml.safe_load(configuration.files(node)["conf/config.yaml"])
    assert isinstance(document, dict)
    return document


def megabytes(value: object) -> int:
    assert isinstance(value, str)
    return int(value.removesuffix("m"))


def process_memory(document: dict[str, object]) -> int:
    """What Flink adds up to the size of a TaskManager's process."""
    parts = (
        "framework.heap.size",
        "task.heap.size",
        "framework.off-heap.size",
        "task.off-heap.size",
        "network.max",
        "managed.size",
        "jvm-metaspace.size",
        "jvm-overhead.max",
    )
    return sum(megabytes(document[f"taskmanager.memory.{part}"]) for part in parts)


def words(command: str) -> list[str]:
    prefix, _, rest = command.partition(" && exec ")
    assert prefix.startswith("mkdir -p ")
    return shlex.split(rest)


def test_every_node_offers_only_its_own_resource() -> None:
    configuration = cluster()
    for node in configuration.nodes:
        document = keys(configuration, node)
        resource = names.resource(node.name)
        assert document["external-resources"] == resource
        assert document[f"external-resource.{resource}.amount"] == 1000
        assert document["taskmanager.resource-id"] == names.task_manager(node.name)
        assert document["taskmanager.host"] == node.address
        assert document["jobmanager.rpc.address"] == SINK.address
        assert [key for key in document if key.startswith("external-resource.")] == [
            f"external-resource.{resource}.amount"
        ]


@settings(deadline=None)
@given(st.text(min_size=1, max_size=12))
def test_any_name_survives_the_yaml_and_the_shell(name: str) -> None:
    node = Node(name, "10.0.0.9", role=COORDINATOR)
    configuration = cluster(node)
    assert keys(configuration, node)["taskmanager.resource-id"] == names.task_manager(name)
    assert words(configuration.task_manager_command(node))[0] == "java"


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=2048))
def test_task_manager_fits_its_host(megabytes_there: int) -> None:
    node = Node("small", "10.0.0.2", memory=megabytes_there * MB)
    try:
        document = keys(cluster(SINK, node), node)
    except ConfigurationError as error:
        assert megabytes_there < 320
        assert f"host small: memory: {megabytes_there} MiB is too little" in str(error)
        return
    network = megabytes(document["taskmanager.memory.network.max"])
    assert process_memory(document) <= min(320 + network - 24, megabytes_there)
    assert 24 <= network <= 128
    assert megabytes(document["taskmanager.memory.task.heap.size"]) > 0


def test_a_large_host_has_more_network_buffers_for_cut_joins() -> None:
    small, large = (Node("h", "10.0.0.2", memory=size * MB) for size in (400, 1024))
    network = [
        keys(cluster(SINK, one), one)["taskmanager.memory.network.max"] for one in (small, large)
    ]
    assert network == ["38m", "128m"]


def test_command_agrees_with_the_configuration() -> None:
    configuration = cluster()
    document, command = keys(configuration, EDGE), words(configuration.task_manager_command(EDGE))
    heap = sum(
        megabytes(document[f"taskmanager.memory.{part}.heap.size"])
        for part in ("framework", "task")
    )
    direct = sum(
        megabytes(document[f"taskmanager.memory.{part}"])
        for part in ("framework.off-heap.size", "task.off-heap.size", "network.max")
    )
    assert f"-Xmx{heap}m" in command
    assert f"-XX:MaxDirectMemorySize={direct}m" in command
    assert command[-2:] == ["--configDir", "/tmp/nova-flink/conf"]
    assert command[command.index("-cp") + 1].endswith(".jar:/opt/flink/nova-flink.jar")


def test_coordinator_has_room_for_both_processes() -> None:
    enough = Node("sink", "10.0.0.1", memory=1024 * MB, role=COORDINATOR)
    assert process_memory(keys(cluster(enough), enough)) + MANAGER_HEAP + MANAGER_OTHERS <= 1024
    with pytest.raises(ConfigurationError, match="JobManager and a TaskManager; at least"):
        cluster(Node("sink", "10.0.0.1", memory=512 * MB, role=COORDINATOR))


def test_the_memory_an_error_asks_for_is_enough() -> None:
    for role in (COORDINATOR, "worker"):
        others = [] if role == COORDINATOR else [SINK]
        with pytest.raises(ConfigurationError) as caught:
            cluster(*others, Node("x", "10.0.0.3", memory=MB, role=role))
        need = int(str(caught.value).split("at least ")[1].split()[0])
        cluster(*others, Node("x", "10.0.0.3", memory=need * MB, role=role))
        with pytest.raises(ConfigurationError):
            cluster(*others, Node("x", "10.0.0.3", memory=(need - 1) * MB, role=role))


@pytest.mark.parametrize(("cpu", "count"), [(0.05, 1), (1.0, 1), (1.5, 2), (4.0, 4)])
def test_java_counts_the_cores_of_the_limit(cpu: float, count: int) -> None:
    node = Node("edge", "10.0.0.2", cpu=cpu)
    command = words(cluster(SINK, node).task_manager_command(node))
    assert f"-XX:ActiveProcessorCount={count}" in command


@pytest.mark.parametrize(("cpu", "quick"), [(0.05, True), (1.0, False), (None, False)])
def test_parts_of_a_core_are_not_spent_on_optimising(cpu: float | None, quick: bool) -> None:
    node = Node("edge", "10.0.0.2", cpu=cpu)
    configuration = cluster(SINK, node)
    assert (QUICK_COMPILER in words(configuration.task_manager_command(node))) is quick
    assert QUICK_COMPILER in words(configuration.coordinator_command(SINK))


def test_settings_replace_and_add() -> None:
    changed = cluster(settings={"slot.request.timeout": "1 s", "some.key": "it's"})
    document = keys(changed, EDGE)
    assert document["slot.request.timeout"] == "1 s"
    assert document["some.key"] == "it's"


def test_options_go_to_their_process() -> None:
    both = cluster(task_manager_options=["-Dt=1"], job_manager_options=["-Dj=1"])
    assert "-Dt=1" in words(both.task_manager_command(SINK))
    assert "-Dj=1" not in words(both.task_manager_command(SINK))
    assert "-Dj=1" in words(both.coordinator_command(SINK))


def test_rest_url() -> None:
    assert cluster(rest_port=9000).rest_url == "http://10.0.0.1:9000"
    assert cluster(Node("s", "fd00::1", role=COORDINATOR)).rest_url == "http://[fd00::1]:8081"


def test_written_files_are_the_files(tmp_path: Path) -> None:
    configuration = cluster()
    write_files(configuration.files(EDGE), tmp_path)
    there = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert there == set(configuration.files(EDGE))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((EDGE,), "exactly one must be the coordinator, found none"),
        ((SINK, Node("b", "10.0.0.2", role=COORDINATOR)), "found sink, b"),
        ((SINK, EDGE, EDGE), "'edge' is there twice"),
        ((SINK, Node("edge", "")), "host edge: address is missing"),
    ],
)
def test_hosts_that_make_no_cluster(nodes: tuple[Node, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cluster(*nodes)


def test_relative_paths_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="work_directory: 'work': expected an absolute"):
        cluster(work_directory="work")
    with pytest.raises(ConfigurationError, match="home_path"):
        ClusterConfiguration([SINK], "flink")


def test_only_the_coordinator_runs_the_job_manager() -> None:
    with pytest.raises(ConfigurationError, match="host edge is not the coordinator"):
        cluster().coordinator_command(EDGE)


def test_a_job_manager_may_have_a_larger_heap() -> None:
    sink = Node("sink", "10.0.0.1", role="coordinator", memory=2048 * MB)
    large = cluster(sink, job_manager_heap=1024)
    assert "-Xmx1024m" in large.coordinator_command(sink)
    assert keys(large, sink)["jobmanager.memory.heap.size"] == "1024m"
    assert process_memory(keys(large, sink)) + 1024 + MANAGER_OTHERS <= 2048
    with pytest.raises(ConfigurationError, match="host sink: memory: 2048 MiB is too little"):
        cluster(sink, job_manager_heap=1800)


def test_a_task_manager_may_take_all_its_host_has() -> None:
    nodes = [SINK, Node("wide", "10.0.0.4", memory=1280 * MB), Node("any", "10.0.0.5")]
    usual, all_ = cluster(*nodes), cluster(*nodes, task_manager=1280)
    wide, unlimited = nodes[1:]
    assert process_memory(keys(usual, wide)) == 320 + 128 - 24  # the rest for buffers
    assert 1200 <= process_memory(keys(all_, wide)) <= 1280
    # Of a host without a limit it is not known what it has.
    assert process_memory(keys(all_, unlimited)) == process_memory(keys(usual, unlimited))
    heap = megabytes(keys(all_, wide)["taskmanager.memory.task.heap.size"]) + 32
    assert f"-Xmx{heap}m" in all_.task_manager_command(wide)
