"""Both versions against directory trees that look like theirs; version 1 also runs in
test_virtual_rack.py where the kernel has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_testbed.rack import RackError
from nova_testbed.rack.cgroups import (
    LEAST_CORES,
    CgroupsV1,
    CgroupsV2,
    Usage,
    bandwidth,
    detect,
    write,
)


@given(st.floats(LEAST_CORES, 256))
def test_quota_and_period_give_the_cores_and_are_what_the_kernel_takes(cores: float) -> None:
    quota, period = bandwidth(cores)
    assert quota >= 1000
    assert 20_000 <= period <= 1_000_000
    assert quota / period == pytest.approx(cores, rel=1e-3)


def test_the_period_is_short_where_it_can_be() -> None:
    assert bandwidth(0.1) == (2000, 20_000)
    assert bandwidth(0.01) == (1000, 100_000)


@pytest.mark.parametrize("cores", [0.0, -1.0, 0.0009, float("nan")])
def test_too_few_cores_are_refused(cores: float) -> None:
    with pytest.raises(RackError, match=r"must be 0\.001 cores or more"):
        bandwidth(cores)


def test_a_write_the_kernel_refuses_is_an_error() -> None:
    with pytest.raises(RackError, match="/dev/full: the kernel refuses 7: No space left"):
        write(Path("/dev/full"), 7)
    with pytest.raises(RackError, match=r"/nowhere/cpu\.max: the kernel refuses 7: No such file"):
        write(Path("/nowhere/cpu.max"), 7)


@pytest.fixture
def first(tmp_path: Path) -> CgroupsV1:
    for name in ("cpu,cpuacct", "memory"):
        (tmp_path / name).mkdir()
    both, memory = tmp_path / "cpu,cpuacct", tmp_path / "memory"
    return CgroupsV1({"cpu": both, "cpuacct": both, "memory": memory})


def test_version_1(first: CgroupsV1) -> None:
    first.create("novarack1", ["a", "b"])
    assert len(first.groups("novarack1", "a")) == 2
    cpu, memory = first.mounts["cpu"] / "novarack1", first.mounts["memory"] / "novarack1"
    assert int((cpu / "cpu.shares").read_text()) == 262_144
    first.set_cpu("novarack1", "a", 0.25)
    assert (cpu / "a" / "cpu.cfs_quota_us").read_text() == "5000"
    assert (cpu / "a" / "cpu.cfs_period_us").read_text() == "20000"
    first.set_cpu("novarack1", "a", None)
    assert (cpu / "a" / "cpu.cfs_quota_us").read_text() == "-1"
    (memory / "a" / "memory.memsw.limit_in_bytes").write_text("0")
    first.set_memory("novarack1", "a", 1 << 20)
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        assert (memory / "a" / name).read_text() == "1048576"
    (cpu / "a" / "cpuacct.usage").write_text("2500000000\n")
    (cpu / "a" / "cpu.stat").write_text("nr_periods 3\nthrottled_time 500000000\n")
    (memory / "a" / "memory.usage_in_bytes").write_text("4096\n")
    (memory / "a" / "memory.oom_control").write_text("oom_kill_disable 0\noom_kill 2\n")
    assert first.usage("novarack1", "a") == Usage(2.5, 0.5, 4096, 2)
    assert first.usage("novarack1", "gone") == Usage()


def test_version_2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    top = tmp_path / "novarack1"
    top.mkdir()
    (top / "cgroup.subtree_control").write_text("")
    second = CgroupsV2(tmp_path)
    second.create("novarack1", ["a"])
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert (top / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert (top / "cpu.weight").read_text() == "10000"
    second.set_cpu("novarack1", "a", 0.5)
    assert (top / "a" / "cpu.max").read_text() == "10000 20000"
    second.set_cpu("novarack1", "a", None)
    assert (top / "a" / "cpu.max").read_text() == "max 20000"
    (top / "a" / "memory.swap.max").write_text("max")
    second.set_memory("novarack1", "a", 4096)
    assert (top / "a" / "memory.max").read_text() == "4096"
    assert (top / "a" / "memory.swap.max").read_text() == "0"
    (top / "a" / "cpu.stat").write_text("usage_usec 1500000\nthrottled_usec 250000\n")
    (top / "a" / "memory.current").write_text("7\n")
    (top / "a" / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert second.usage("novarack1", "a") == Usage(1.5, 0.25, 7, 1)


def test_limits_without_a_controller_are_errors(tmp_path: Path) -> None:
    groups = CgroupsV1({"cpuacct": tmp_path})
    groups.set_cpu("novarack1", "a", None)
    groups.set_memory("novarack1", "a", None)
    with pytest.raises(RackError, match="host a: no CPU limit"):
        groups.set_cpu("novarack1", "a", 1.0)
    with pytest.raises(RackError, match=r"host a: no memory limit.*cgroup_enable=memory"):
        groups.set_memory("novarack1", "a", 1)


def test_groups_are_found_and_removed(tmp_path: Path) -> None:
    groups = CgroupsV1({"cpu": tmp_path / "cpu", "memory": tmp_path / "memory"})
    for name in ("cpu", "memory"):
        for group in ("novarack1/a", "novarack12", "novarack-of-others", "system.slice"):
            (tmp_path / name / group).mkdir(parents=True)
    assert groups.racks() == {"novarack1", "novarack12"}
    (tmp_path / "cpu" / "novarack1" / "a" / "cgroup.procs").write_text("12\n13\n")
    assert groups.processes("novarack1") == {12, 13}
    (tmp_path / "cpu" / "novarack1" / "a" / "cgroup.procs").unlink()
    groups.remove("novarack1")
    assert groups.racks() == {"novarack12"}


def test_a_group_in_use_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_testbed.rack.cgroups.REMOVAL_SECONDS", 0.05)
    groups = CgroupsV1({"cpu": tmp_path})
    (tmp_path / "novarack1").mkdir()
    (tmp_path / "novarack1" / "busy").write_text("")
    with pytest.raises(RackError, match="novarack1: cannot be removed"):
        groups.remove("novarack1")


V1 = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / {second} rw,relatime - cgroup2 cgroup2 rw
"""


def test_the_version_in_use_is_detected(tmp_path: Path) -> None:
    found = detect(V1.format(second="/sys/fs/cgroup/unified"))
    assert isinstance(found, CgroupsV1)
    both = Path("/sys/fs/cgroup/cpu,cpuacct")
    memory = Path("/sys/fs/cgroup/memory")
    assert found.mounts == {"cpu": both, "cpuacct": both, "memory": memory}
    assert found.roots == (both, memory)

    only_second = V1.format(second=tmp_path).splitlines()[-1]
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    found = detect(only_second)
    assert isinstance(found, CgroupsV2)
    assert found.controllers() == {"cpu", "memory"}
    (tmp_path / "cgroup.controllers").write_text("hugetlb")
    assert detect(only_second) is None
