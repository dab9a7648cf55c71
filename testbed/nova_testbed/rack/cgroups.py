"""Limits of CPU and memory: control groups of both versions.

Each rack has a group of its own below the root of each hierarchy, each host one below that.
"""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nova_testbed.rack.state import PREFIX, RackError

# A short period keeps latencies smooth: at 20 ms a host with 10 % pauses for 18 ms at most.
PERIOD_US = 20_000
LEAST_QUOTA_US = 1_000
MOST_PERIOD_US = 1_000_000
LEAST_CORES = LEAST_QUOTA_US / MOST_PERIOD_US
# Otherwise all hosts of a rack together would get the share of one other process.
SHARES_V1 = 262_144
WEIGHT_V2 = 10_000
REMOVAL_SECONDS = 5.0


@dataclass(frozen=True)
class Usage:
    """The resources a host has used.

    Attributes:
        cpu_seconds: CPU time since it came up; None where that is not counted.
        throttled_seconds: how long its processes were held back by the CPU limit.
        memory_bytes: now, with file pages.
        oom_kills: processes killed because of the memory limit.
    """

    cpu_seconds: float | None = None
    throttled_seconds: float | None = None
    memory_bytes: int | None = None
    oom_kills: int | None = None


def bandwidth(cores: float) -> tuple[int, int]:
    """Quota and period, us, that give a number of cores.

    The period is 20 ms, or what the least quota of 1 ms needs for a smaller share.

    Raises:
        RackError: below 0.001 cores.
    """
    if not cores >= LEAST_CORES:
        raise RackError(f"CPU limit {cores:g}: must be {LEAST_CORES:g} cores or more")
    period = max(PERIOD_US, math.ceil(LEAST_QUOTA_US / cores))
    period = min(period, MOST_PERIOD_US)
    return max(round(cores * period), LEAST_QUOTA_US), period


def write(file: Path, value: object) -> None:
    """Write to a file of a control group.

    Raises:
        RackError: where the kernel refuses; it says so when the file is closed.
    """
    try:
        with file.open("w") as stream:
            stream.write(str(value))
    except OSError as error:
        raise RackError(f"{file}: the kernel refuses {value}: {error.strerror}") from error


class Cgroups(ABC):
    """The control groups of racks."""

    version: int

    @property
    @abstractmethod
    def roots(self) -> tuple[Path, ...]:
        """The root of each hierarchy in use."""

    @abstractmethod
    def controllers(self) -> set[str]:
        """Which of ``cpu`` and ``memory`` can be limited."""

    @abstractmethod
    def create(self, rack: str, hosts: Iterable[str]) -> None:
        """Make the groups of a rack and its hosts; those that exist stay.

        Raises:
            RackError: where the kernel refuses.
        """

    @abstractmethod
    def _limit_cpu(self, rack: str, host: str, cores: float | None) -> None: ...

    @abstractmethod
    def _limit_memory(self, rack: str, host: str, size: int | None) -> None: ...

    @abstractmethod
    def usage(self, rack: str, host: str) -> Usage:
        """What a host has used so far."""

    def set_cpu(self, rack: str, host: str, cores: float | None) -> None:
        """Limit a host to a number of cores; None lifts the limit.

        Raises:
            RackError: where that cannot be done.
        """
        if "cpu" in self.controllers():
            self._limit_cpu(rack, host, cores)
        elif cores is not None:
            raise RackError(f"host {host}: no CPU limit, for this kernel has no cgroup for it")

    def set_memory(self, rack: str, host: str, size: int | None) -> None:
        """Limit a host to a number of bytes; None lifts the limit.

        Raises:
            RackError: where that cannot be done.
        """
        if "memory" in self.controllers():
            self._limit_memory(rack, host, size)
        elif size is not None:
            raise RackError(
                f"host {host}: no memory limit, for this kernel has no cgroup for it (on a "
                "Raspberry Pi: cgroup_enable=memory in /boot/firmware/cmdline.txt)"
            )

    def groups(self, rack: str, host: str) -> list[Path]:
        """A host's groups."""
        return [root / rack / host for root in self.roots]

    def racks(self) -> set[str]:
        """Names of the racks that have groups."""
        names = (path.name for root in self.roots for path in root.glob(f"{PREFIX}*"))
        return {name for name in names if re.fullmatch(rf"{PREFIX}\d+", name)}

    def directories(self, rack: str, host: str = "") -> list[Path]:
        """All groups of a rack, or of one of its hosts, the innermost first."""
        tops = [root / rack / host for root in self.roots]
        below = [path for top in tops for path in top.glob("**/") if path.is_dir()]
        return sorted(set(below), key=lambda path: (-len(path.parts), str(path)))

    def processes(self, rack: str, host: str = "") -> set[int]:
        """Processes in any group of a rack, or of one of its hosts."""
        pids: set[int] = set()
        for directory in self.directories(rack, host):
            try:
                pids.update(map(int, (directory / "cgroup.procs").read_text().split()))
            except (FileNotFoundError, OSError):
                continue
        return pids

    def remove(self, rack: str) -> None:
        """Remove the groups of a rack, whose processes have been ended.

        Raises:
            RackError: when one is still in use after some seconds.
        """
        end = time.monotonic() + REMOVAL_SECONDS
        for directory in self.directories(rack):
            while True:
                try:
                    directory.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if time.monotonic() > end:
                        raise RackError(f"{directory}: cannot be removed: {error}") from error
                    time.sleep(0.01)


class CgroupsV1(Cgroups):
    """Version 1: a hierarchy per controller, or several controllers in one."""

    version = 1

    def __init__(self, mounts: dict[str, Path]) -> None:
        """Args: mounts: where the hierarchy of ``cpu``, ``cpuacct`` and ``memory`` is."""
        self.mounts = mounts

    @property
    def roots(self) -> tuple[Path, ...]:
        """The root of each hierarchy in use."""
        return tuple(sorted(set(self.mounts.values())))

    def controllers(self) -> set[str]:
        """Which of ``cpu`` and ``memory`` can be limited."""
        return {"cpu", "memory"} & set(self.mounts)

    def create(self, rack: str, hosts: Iterable[str]) -> None:
        """Make the groups of a rack and its hosts."""
        names = list(hosts)
        for root in self.roots:
            for group in (root / rack, *(root / rack / name for name in names)):
                _mkdir(group)
        if "cpu" in self.mounts:
            write(self.mounts["cpu"] / rack / "cpu.shares", SHARES_V1)

    def _limit_cpu(self, rack: str, host: str, cores: float | None) -> None:
        group = self.mounts["cpu"] / rack / host
        quota, period = (-1, PERIOD_US) if cores is None else bandwidth(cores)
        # A period that does not fit the old quota would be refused.
        write(group / "cpu.cfs_quota_us", -1)
        write(group / "cpu.cfs_period_us", period)
        write(group / "cpu.cfs_quota_us", quota)

    def _limit_memory(self, rack: str, host: str, size: int | None) -> None:
        group = self.mounts["memory"] / rack / host
        limit, both = group / "memory.limit_in_bytes", group / "memory.memsw.limit_in_bytes"
        value = -1 if size is None else size
        # The limit with swap must not be below the other: raise it first, lower it last.
        if both.exists():
            write(both, -1)
        write(limit, value)
        if both.exists():
            write(both, value)

    def usage(self, rack: str, host: str) -> Usage:
        """What a host has used so far."""
        group = {name: mount / rack / host for name, mount in self.mounts.items()}
        cpu = throttled = memory = kills = None
        if "cpuacct" in group:
            cpu = _number(group["cpuacct"] / "cpuacct.usage")
        if "cpu" in group:
            throttled = _field(group["cpu"] / "cpu.stat", "throttled_time")
        if "memory" in group:
            memory = _number(group["memory"] / "memory.usage_in_bytes")
            kills = _field(group["memory"] / "memory.oom_control", "oom_kill")
        return Usage(
            None if cpu is None else cpu / 1e9,
            None if throttled is None else throttled / 1e9,
            memory,
            kills,
        )


class CgroupsV2(Cgroups):
    """Version 2: one hierarchy, whose controllers are enabled level by level."""

    version = 2

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def roots(self) -> tuple[Path, ...]:
        """The root of the hierarchy."""
        return (self.root,)

    def controllers(self) -> set[str]:
        """Which of ``cpu`` and ``memory`` can be limited."""
        return {"cpu", "memory"} & set((self.root / "cgroup.controllers").read_text().split())

    def create(self, rack: str, hosts: Iterable[str]) -> None:
        """Make the groups of a rack and its hosts."""
        top = self.root / rack
        controllers = self.controllers()
        self._hand_down(self.root, controllers)
        _mkdir(top)
        self._hand_down(top, controllers)
        if "cpu" in controllers:
            write(top / "cpu.weight", WEIGHT_V2)
        for name in hosts:
            _mkdir(top / name)

    def _hand_down(self, group: Path, controllers: set[str]) -> None:
        file = group / "cgroup.subtree_control"
        missing = controllers - set(file.read_text().split())
        if missing:
            write(file, " ".join(f"+{name}" for name in sorted(missing)))

    def _limit_cpu(self, rack: str, host: str, cores: float | None) -> None:
        quota, period = ("max", PERIOD_US) if cores is None else bandwidth(cores)
        write(self.root / rack / host / "cpu.max", f"{quota} {period}")

    def _limit_memory(self, rack: str, host: str, size: int | None) -> None:
        group = self.root / rack / host
        write(group / "memory.max", "max" if size is None else size)
        if (group / "memory.swap.max").exists():
            write(group / "memory.swap.max", "max" if size is None else 0)

    def usage(self, rack: str, host: str) -> Usage:
        """What a host has used so far."""
        group = self.root / rack / host
        cpu = _field(group / "cpu.stat", "usage_usec")
        throttled = _field(group / "cpu.stat", "throttled_usec")
        return Usage(
            None if cpu is None else cpu / 1e6,
            None if throttled is None else throttled / 1e6,
            _number(group / "memory.current"),
            _field(group / "memory.events", "oom_kill"),
        )


def realtime_group() -> Path | None:
    """``cgroup.procs`` of a group whose processes get real-time priority; None where all do.

    Kernels with RT_GROUP_SCHED refuse it in other groups of version 1 than the root.
    """
    groups = detect()
    if isinstance(groups, CgroupsV1) and "cpu" in groups.mounts:
        return groups.mounts["cpu"] / "cgroup.procs"
    return None


def detect(mountinfo: str | None = None) -> Cgroups | None:
    """The control groups of this machine; None where there are none that can limit CPU or memory.

    Args:
        mountinfo: the text of ``/proc/self/mountinfo``, for tests.
    """
    text = mountinfo if mountinfo is not None else Path("/proc/self/mountinfo").read_text()
    first: dict[str, Path] = {}
    second: Path | None = None
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        mount = Path(before.split()[4])
        if kind == "cgroup":
            for name in {"cpu", "cpuacct", "memory"} & set(options.split(",")):
                first.setdefault(name, mount)
        elif kind == "cgroup2":
            second = second or mount
    if first:
        return CgroupsV1(first)
    if second is not None:
        groups = CgroupsV2(second)
        if groups.controllers():
            return groups
    return None


def _mkdir(group: Path) -> None:
    try:
        group.mkdir(exist_ok=True)
    except OSError as error:
        raise RackError(f"{group}: no such control group can be made: {error.strerror}") from error


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except FileNotFoundError:
        return None


def _field(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None
