"""All hosts of an inventory at once.

with connect(inventory) as hosts:
    hosts["worker1"].run("uname -a")
    hosts.run("uptime")              # on all of them at the same time
    job = hosts["source1"].start("./producer")
    ...                              # what was started here ends with the block
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from nova_core.errors import NovaError
from nova_testbed.connection import HostError
from nova_testbed.host import Host, InterruptedCommandError, Result
from nova_testbed.inventory import HostSpec, Inventory

Answer = TypeVar("Answer")

AT_ONCE = 32
# How long threads have after Ctrl-C to stop their commands on the hosts.
LEAVE_SECONDS = 5.0


class HostsWarning(UserWarning):
    """Something on a host that could not be cleaned up."""


class Hosts:
    """Connected hosts, by name, in the order of the inventory.

    Attributes:
        inventory: which describes them.
    """

    def __init__(self, inventory: Inventory, names: Iterable[str] | None = None) -> None:
        """Name the hosts; `open` connects to them.

        Args:
            inventory: of the test bed.
            names: only these hosts.

        Raises:
            InventoryError: for an unknown name.
        """
        self.inventory = inventory
        self._cancelled = threading.Event()
        selected = None if names is None else [inventory.host(name) for name in names]
        chosen: Iterable[HostSpec] = inventory.hosts if selected is None else selected
        self._hosts = {spec.name: Host(spec, self._cancelled) for spec in chosen}

    def __getitem__(self, name: str) -> Host:
        if name not in self._hosts:
            self.inventory.host(name)
            raise NovaError(f"host {name!r} is not among those connected to")
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def __len__(self) -> int:
        return len(self._hosts)

    # --- many at once ---------------------------------------------------------------------------

    def map(
        self,
        work: Callable[[Host], Answer],
        on: Iterable[str] | None = None,
        *,
        at_once: int = AT_ONCE,
        progress: Callable[[str], None] | None = None,
    ) -> dict[str, Answer]:
        """Call a function on many hosts at the same time.

        Args:
            work: the function.
            on: names of hosts; all by default.
            at_once: on how many hosts at a time.
            progress: called with the name of each finished host.

        Returns:
            The answers, by host.

        Raises:
            HostError: of the first host, in order, that failed, after all are finished; it names
                the others that failed.
        """
        hosts = list(self) if on is None else [self[name] for name in on]
        answers: dict[str, Answer] = {}
        errors: dict[str, Exception] = {}
        slots = threading.Semaphore(at_once)

        def one(host: Host) -> None:
            with slots:
                try:
                    answers[host.name] = work(host)
                    if progress is not None:
                        progress(host.name)
                except Exception as error:
                    errors[host.name] = error

        # Daemons, so that a host that does not answer cannot keep the program from ending.
        threads = [threading.Thread(target=one, args=(host,), daemon=True) for host in hosts]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._cancelled.set()
            for thread in threads:
                thread.join(LEAVE_SECONDS)
            raise
        if errors:
            raise _first_of(errors, [host.name for host in hosts])
        return {host.name: answers[host.name] for host in hosts}

    def run(
        self, command: str, on: Iterable[str] | None = None, **options: Any
    ) -> dict[str, Result]:
        """Run a command on many hosts at the same time; options are those of `Host.run`."""
        return self.map(lambda host: host.run(command, **options), on)

    def put(
        self, local: str | Path, remote: str, on: Iterable[str] | None = None, **options: Any
    ) -> None:
        """Copy a file or directory to many hosts; options are those of `Host.put`."""
        self.map(lambda host: host.put(local, remote, **options), on, at_once=4)

    # --- begin and end --------------------------------------------------------------------------

    def open(self, progress: Callable[[str], None] | None = None) -> Self:
        """Connect to all of them.

        Args:
            progress: called with the name of each connected host.

        Raises:
            HostError: when one cannot be connected to.
        """
        self.map(lambda host: host.connection.open(), progress=progress)
        return self

    def close(self) -> None:
        """Stop the jobs started here, except kept ones, and disconnect.

        Raises:
            HostError: when something may still be running on a host.
        """
        self._cancelled.clear()
        self.map(lambda host: host.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except HostError as left:
            # The error that ended the block says more than this later one.
            if error is None:
                raise
            warnings.warn(f"while cleaning up: {left}", HostsWarning, stacklevel=2)


def connect(
    inventory: Inventory,
    names: Iterable[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Hosts:
    """Connect to the hosts of an inventory, to be used in a ``with`` block.

    Args:
        inventory: of real hosts, or what `nova_testbed.rack.VirtualRack.up` returned.
        names: only these hosts.
        progress: called with the name of each connected host.

    Raises:
        HostError: when one cannot be connected to.
    """
    hosts = Hosts(inventory, names)
    try:
        return hosts.open(progress)
    except BaseException:
        for host in hosts:
            host.connection.close()
        raise


def _first_of(errors: dict[str, Exception], order: list[str]) -> Exception:
    """The error of the first host; it also names the other failed hosts."""
    names = [name for name in order if name in errors]
    real = [name for name in names if not isinstance(errors[name], InterruptedCommandError)]
    first = errors[(real or names)[0]]
    others = [name for name in names if errors[name] is not first]
    if others and isinstance(first, HostError):
        first.args = (f"{first} (and {len(others)} more: {', '.join(others)})",)
    return first
