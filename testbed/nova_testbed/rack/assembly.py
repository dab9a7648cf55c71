"""Creates and removes a rack."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from collections.abc import Iterator

import msgspec

import nova_testbed.rack.cgroups as cgroups
import nova_testbed.rack.cleanup as cleanup
import nova_testbed.rack.network as network
import nova_testbed.rack.switch as switch
import nova_testbed.rack.virtual_host as virtual_host
from nova_testbed.rack.keys import known_hosts, make_key
from nova_testbed.rack.privileges import Progress
from nova_testbed.rack.processes import marked
from nova_testbed.rack.requirements import missing
from nova_testbed.rack.state import (
    HostRecord,
    Names,
    RackError,
    RackRecord,
    RackWarning,
    StateDirectory,
    give_to_user,
    user_id,
)
from nova_testbed.rack.state import replace as write_file


def create(draft: RackRecord, state: StateDirectory, tell: Progress) -> None:
    """Create a rack; when that fails, nothing is left of it.

    Args:
        draft: its record, without a number.
        state: its directory.
        tell: progress callback.

    Raises:
        RackError: with the reason.
    """
    if not state.is_ours():
        raise RackError(
            f"state directory {state.path}: has other files in it; a rack needs a "
            "directory of its own"
        )
    remove(state)  # what an earlier attempt may have left
    try:
        state.create()
        names = network.claim(state.path)
        disks = virtual_host.make_disk_directory(state, names.prefix)
        record = msgspec.structs.replace(draft, number=names.number, disks=str(disks))
        state.write(record)
        bring_up(record, state, tell)
    except BaseException as error:
        with uninterrupted():
            remove(state)
        reason = missing() if isinstance(error, RackError) else None
        if reason:
            raise RackError(f"{error}; {reason}") from error
        raise


def bring_up(record: RackRecord, state: StateDirectory, tell: Progress) -> None:
    """Create the missing parts of a rack."""
    total = len(record.hosts)
    groups = cgroups.detect()
    names = record.names
    tell("network", 0, total)
    # Before any host can be reached.
    why = network.guard(names, {0, state.path.stat().st_uid, user_id()})
    if why:
        warnings.warn(
            f"rack {record.name}: ANY user of this machine can reach its hosts and run programs on "
            f"them while engines are up, for there is no packet filter ({why})",
            RackWarning,
            stacklevel=2,
        )
    network.create(record)
    if groups is not None:
        groups.create(names.prefix, [host.name for host in record.hosts])
    login = make_key(state.key_file, f"nova-{record.name}")
    parts = marked(record.number)
    keys = {}
    for index, host in enumerate(record.hosts):
        keys[names.data(index)] = virtual_host.make_disk(record, state, host.name, login)
    write_file(state.known_hosts, known_hosts(keys))
    down = [host.name for host in record.hosts if host.name not in parts]
    for finished, name in enumerate(down):
        tell("starting hosts", finished, len(down))
        own = groups.groups(names.prefix, name) if groups else []
        virtual_host.start(record, state, name, own)
    if record.emulation == "switch":
        if switch.statistics(state) is None:
            tell("switch", 0, 1)
            switch.stop(record)
            start_switch(record, state)
        else:
            switch.reload(record, state)
    for finished, name in enumerate(down):
        tell("waiting for SSH", finished, len(down))
        virtual_host.wait_for_ssh(record, state, name)
    # Only now: a host with little CPU would take long to start.
    for host in record.hosts:
        limit(names, host)
    state.write(msgspec.structs.replace(record, complete=True, guarded=not why))
    for path in (
        state.path,
        state.logs,
        state.key_file,
        state.key_file.with_suffix(".pub"),
        state.known_hosts,
    ):
        give_to_user(path)
    tell("up", total, total)


def start_switch(record: RackRecord, state: StateDirectory) -> None:
    """Start the switch, and warn where its timing will suffer."""
    counters = switch.start(record, state, cgroups.realtime_group())
    if not counters.realtime:
        warnings.warn(
            f"rack {record.name}: the switch gets no real-time priority; other programs will "
            "show in its delays",
            RackWarning,
            stacklevel=2,
        )


def limit(names: Names, host: HostRecord) -> None:
    """Put a host's limits in force."""
    groups = cgroups.detect()
    if groups is not None:
        groups.set_cpu(names.prefix, host.name, host.cpu)
        groups.set_memory(names.prefix, host.name, host.memory)
    elif host.cpu is not None or host.memory is not None:
        raise RackError(
            f"host {host.name}: no limits, for this machine has no control groups in "
            "/proc/self/mountinfo that could limit CPU or memory"
        )


def remove(state: StateDirectory) -> None:
    """Remove all parts of a rack, whatever its state."""
    numbers = set(network.claimed_by(state.path))
    record = None
    with contextlib.suppress(RackError):  # a record that cannot be read
        record = state.read()
    if record is not None and network.state_directory_of(record.number) is None:
        numbers.add(record.number)
    for number in numbers:
        cleanup.remove(number, None, record)
    cleanup.remove(None, state)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C until the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
