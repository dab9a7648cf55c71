"""Finding and removing the parts of racks on this machine, by their names and marks only."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nova_testbed.rack.cgroups as cgroups
import nova_testbed.rack.network as network
from nova_testbed.rack.privileges import as_root, is_root
from nova_testbed.rack.processes import end_processes, in_namespaces, marked
from nova_testbed.rack.reservation import reserved
from nova_testbed.rack.state import (
    MOST_RACKS,
    PREFIX,
    Names,
    RackError,
    RackRecord,
    RackWarning,
    StateDirectory,
    default_state_root,
    locked,
    make_directory,
    pattern_of,
)

# Where disks lie when a state directory cannot hold them.
OUTSIDE = (Path("/var/tmp"), Path("/dev/shm"))


@dataclass(frozen=True)
class Leftover:
    """One thing that belongs to a rack.

    Attributes:
        kind: process, cgroup, namespace, device, route, table, mount or directory.
        name: what it is.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def leftovers(
    number: int | None = None, state_directories: Iterable[Path] = ()
) -> tuple[Leftover, ...]:
    """Everything of one rack, or of all racks, that is on this machine now.

    Needs root to see processes of others.

    Args:
        number: of the rack; None for all.
        state_directories: count as leftovers while they exist.
    """
    items = [Leftover("process", str(pid)) for pid in sorted(_processes(number))]
    groups = cgroups.detect()
    if groups is not None:
        racks = groups.racks() if number is None else {Names(number).prefix}
        paths = (path for rack in racks for path in groups.directories(rack))
        items += [Leftover("cgroup", str(path)) for path in paths]
    items += [Leftover("namespace", name) for name in network.namespaces(number)]
    items += [Leftover("device", name) for name in network.devices(number)]
    items += [Leftover("route", route) for route in network.routes(number)]
    # Where they cannot be asked for, `remove` says so of a rack that is known to have one.
    with contextlib.suppress(RackError):
        items += [Leftover("table", name) for name in network.guards(number)]
    items += [Leftover("mount", point) for point in _mounts(number, state_directories)]
    for path in (*state_directories, *_outside_disks(number)):
        if path.exists():
            items.append(Leftover("directory", str(path)))
    return tuple(items)


def numbers_in_use() -> list[int]:
    """Numbers of the racks that have any part on this machine."""
    numbers: set[int] = set()
    for item in leftovers():
        for match in re.finditer(rf"{PREFIX}(\d+)|198\.1[89]\.(\d+)\.", item.name):
            numbers.add(int(match[1] or match[2]))
    for part in marked():
        number = part.partition(":")[0]
        if number.isdigit():
            numbers.add(int(number))
    return sorted(number for number in numbers if number < MOST_RACKS)


def remove(
    number: int | None,
    state: StateDirectory | None,
    record: RackRecord | None = None,
) -> None:
    """Remove all of one rack, whatever state it is in.

    Args:
        number: None when it has none.
        state: its state directory, which is removed, too.
        record: what is known of it.

    Raises:
        RackError: when a part cannot be removed, after all others are.
    """
    refused = []
    if number is not None:
        groups = cgroups.detect()
        try:
            end_processes(lambda: _processes(number))
            if groups is not None:
                groups.remove(Names(number).prefix)
        except RackError as error:
            refused.append(str(error))
        network.remove(number)
        if record is not None and record.guarded:
            try:
                network.guards(number)
            except RackError as error:
                refused.append(f"table ip {Names(number).prefix} ({error})")
        disks = _outside_disks(number) + ([] if record is None else [Path(record.disks)])
        for directory in disks:
            shutil.rmtree(directory, ignore_errors=True)
        # When the bridge is gone, another rack may have the number: its parts are no leftovers.
        bridge = Names(number).bridge
        refused += [str(item) for item in leftovers(number) if item.name != bridge]
        if not network.release(number):
            refused.append(f"device {bridge}")
    if state is not None:
        state.remove()
    if refused:
        raise RackError(f"not all of the rack could be removed: {', '.join(refused)}")


def clean(
    *, running: bool = True, all_racks: bool = True, state_root: Path | None = None
) -> tuple[str, ...]:
    """Remove racks: everything that any of them, running or crashed, has left on this machine.

    Args:
        running: False leaves those that are up with all their hosts, with a warning.
        all_racks: False leaves other users' racks: those whose state directory exists outside
            ``state_root``, or is not visible here while they run.
        state_root: directory of state directories; by default the user's.

    Returns:
        What was removed, a line for each rack.

    Raises:
        RackError: when something cannot be removed, or root's rights are missing.

    Warns:
        RackWarning: for each rack that is left because it is up, or in use.
    """
    root = state_root or default_state_root()
    make_directory(root)
    if not is_root():
        arguments = {"running": running, "all_racks": all_racks, "state_root": root}
        return as_root("clean", arguments, tuple)
    with locked(root):
        return _clean(running, all_racks, root)


def _clean(running: bool, all_racks: bool, root: Path) -> tuple[str, ...]:
    recorded: dict[int, Path] = {}
    loose: list[Path] = []
    for path in sorted(root.iterdir()):
        if not path.is_dir() or not StateDirectory(path).is_ours():
            continue
        record = _record_of(path)
        # The number may have been given to another rack since.
        if record is None or network.state_directory_of(record.number) not in (None, path):
            loose.append(path)
        else:
            recorded[record.number] = path
    removed, refused = [], []
    for number in sorted({*numbers_in_use(), *recorded}):
        state = network.state_directory_of(number) or recorded.get(number)
        if state is not None and not all_racks and _is_of_others(number, state, root):
            continue
        record = None if state is None else _record_of(state)
        if not running and record is not None and _is_up(record):
            warnings.warn(
                f"rack {record.name} ({state}) is up and stays; `nova testbed clean --all` "
                "removes it too",
                RackWarning,
                stacklevel=3,
            )
            continue
        with contextlib.ExitStack() as reservation:
            if state is not None and state.parent.is_dir():
                name = state.name if record is None else record.name
                try:
                    reservation.enter_context(reserved(name, state))
                except RackError as error:
                    warnings.warn(str(error), RackWarning, stacklevel=3)
                    continue
            kinds = Counter(item.kind for item in leftovers(number))
            try:
                remove(
                    number,
                    StateDirectory(state) if state is not None else None,
                    record,
                )
            except RackError as error:
                refused.append(str(error))
                continue
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        removed.append(f"rack {number} ({state or 'no state directory'}): {counts or 'files'}")
    for path in loose:
        StateDirectory(path).remove()
        removed.append(f"state directory {path}: files")
    if refused:
        raise RackError("; ".join(refused))
    return tuple(removed)


def _is_of_others(number: int, state: Path, root: Path) -> bool:
    """Whether a rack was brought up elsewhere and is in use.

    A running rack whose state directory is not visible here may belong to a container that shares
    this machine's network.
    """
    return state.parent != root if state.exists() else bool(_processes(number))


def _is_up(record: RackRecord) -> bool:
    """Whether it was brought up completely, and all its hosts run."""
    return record.complete and {host.name for host in record.hosts} <= marked(record.number).keys()


def _record_of(state: Path) -> RackRecord | None:
    try:
        return StateDirectory(state).read()
    except RackError:
        return None


def _processes(number: int | None) -> set[int]:
    groups = cgroups.detect()
    pids = set().union(*marked(number).values())
    pids |= in_namespaces(network.NETNS / name for name in network.namespaces(number))
    if groups is not None:
        racks = groups.racks() if number is None else {Names(number).prefix}
        for rack in racks:
            pids |= groups.processes(rack)
    return pids


def _mounts(number: int | None, directories: Iterable[Path]) -> list[str]:
    tops = [str(path) for path in (*directories, *_outside_disks(number))]
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4]
        if re.fullmatch(rf"{network.NETNS}/{PREFIX}{pattern_of(number)}[-:].*", point) or any(
            point == top or point.startswith(f"{top}/") for top in tops
        ):
            points.append(point)
    return points


def _outside_disks(number: int | None) -> list[Path]:
    """Directories of disks that lie outside of state directories.

    Everybody may make things of such names there; a rack's are root's.
    """
    pattern = re.compile(rf"{PREFIX}{pattern_of(number)}")
    return [
        path
        for top in OUTSIDE
        for path in sorted(top.iterdir())
        if pattern.fullmatch(path.name) and _is_roots_directory(path)
    ]


def _is_roots_directory(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
