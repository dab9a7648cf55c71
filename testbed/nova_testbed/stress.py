"""Artificial load on hosts, with stress-ng (paper, section 4.1: full CPU and 80 % memory)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nova_core.programs import PROGRAMS
from nova_testbed.connection import HostError
from nova_testbed.host import Host
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import InventoryError, StressProfile
from nova_testbed.jobs import BackgroundJob

JOB = "stress"
# When stress-ng has not complained within this time, it runs.
SETTLE_SECONDS = 0.5


@contextmanager
def stress(hosts: Hosts, profile: StressProfile | None = None) -> Iterator[None]:
    """Load on hosts for as long as the block lasts, however it ends.

    Args:
        hosts: connected.
        profile: what load on which hosts; the inventory's by default.

    Raises:
        HostError: when a host cannot be loaded.
        InventoryError: for a profile without hosts.
    """
    load_profile = profile or hosts.inventory.stress
    started = start(hosts, load_profile)
    try:
        yield
    finally:
        hosts.map(lambda host: started[host.name].end(), list(started))


def start(
    hosts: Hosts, profile: StressProfile, *, keep: bool = False, at: float | None = None
) -> dict[str, BackgroundJob]:
    """Start load; hosts that are under load already get the new load instead.

    Args:
        hosts: connected.
        profile: what load on which hosts.
        keep: let it go on when the hosts are closed.
        at: when it begins by the hosts' clocks, s since the epoch, in whole seconds; None is now.
            Memory is filled at once in any case: that takes a while.

    Returns:
        The job on each of the profile's hosts.

    Raises:
        HostError: when a host cannot be loaded; then none is.
        InventoryError: for a profile without hosts.
    """
    if not profile.hosts:
        raise InventoryError(
            f"inventory {hosts.inventory.name}: stress: names no hosts or roles; name hosts"
        )

    def lacks(host: Host) -> None:
        if "stress-ng" not in host.programs:
            raise HostError(host.name, f"stress-ng is missing; {PROGRAMS['stress-ng'].on_debian}")

    def one(host: Host) -> BackgroundJob:
        host.end_jobs(JOB)
        job = host.start(command(host, profile, at), name=JOB, keep=keep)
        time.sleep(SETTLE_SECONDS)
        if not job.alive():
            raise HostError(host.name, f"stress-ng does not run: {job.last_words()}")
        return job

    hosts.map(lacks, profile.hosts)
    try:
        return hosts.map(one, profile.hosts)
    except BaseException:
        stop(hosts, profile.hosts)
        raise


def stop(hosts: Hosts, on: Sequence[str] | None = None) -> list[str]:
    """Stop the load that this user has started.

    Returns:
        The hosts that were under load.
    """
    ended = hosts.map(lambda host: host.end_jobs(JOB), on)
    return [name for name, count in ended.items() if count]


def command(host: Host, profile: StressProfile, at: float | None = None) -> str:
    """The command that makes the load: shares of the host's limits, not of its machine's resources.

    Args:
        host: connected.
        profile: what load.
        at: when the load on the CPU begins, s since the epoch; None is now.

    Raises:
        HostError: when the host cannot tell how much it has.
    """
    output = host.run("nproc; grep MemTotal /proc/meminfo").stdout.split()
    cores, memory = int(output[0]), 1024 * int(output[2])
    cpu = min(cores, host.spec.cpu or cores)
    workers = math.ceil(cpu)
    # A worker that is asked for 100 % does not pause; a limit then keeps it at its share.
    full = profile.cpu_percent >= 100
    load = 100.0 if full else profile.cpu_percent * cpu / workers
    of_cpu = of_memory = ""
    if profile.cpu_percent > 0:
        of_cpu = f" --cpu {workers} --cpu-load {max(1, round(load))}"
    if profile.memory_percent > 0:
        size = int(min(memory, host.spec.memory or memory) * profile.memory_percent / 100)
        # Written once, then held.
        of_memory = f" --vm 1 --vm-bytes {size} --vm-keep --vm-hang 0 --vm-method write64"
    program = "stress-ng --oomable"
    if at is None or not of_cpu:
        return f"exec {program}{of_cpu}{of_memory}"
    fill = f"{program}{of_memory} & " if of_memory else ""
    wait = f"sleep $(({math.ceil(at)} - $(date +%s))) 2>/dev/null; "
    return f"{fill}{wait}exec {program}{of_cpu}"
