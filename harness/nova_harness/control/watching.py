"""The controller in a terminal: hosts, their counted capacity, and the last lines of its log.

The same is in a file, for other processes.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nova_core import console
from nova_core.errors import NovaError
from nova_core.io.safe_files import atomic_write
from nova_harness.control.state import ControlState, state_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from nova_harness.control.controller import Controller
    from nova_harness.control.decision_log import Entry

# Hosts and sinks are read as often.
STATE, WRITE_S = "state.json", 2.0
LINES = 10
LOG_LINES = 200
COLOURS = {
    "disturbed": "blue",
    "noticed": "yellow",
    "refused": "magenta",
    "failed": "red",
    "waiting": "red",
    "handed-over": "green",
    "recovered": "green",
    "restarted": "cyan",
}


class Watching:
    """What `nova control run` shows while it runs.

    Args:
        live: where tables are drawn; None to write lines as they come.
        directory: where the state is written, too.

    Attributes:
        state: at the last look; None before the first one.
    """

    def __init__(self, live: Live | None, directory: Path) -> None:
        self._live, self._directory = live, directory
        self._log: deque[Entry] = deque(maxlen=LOG_LINES)
        self._kinds: Counter[str] = Counter()
        self._written_at = -math.inf
        self.state: ControlState | None = None

    def note(self, entry: Entry) -> None:
        """Take a line of the log."""
        self._log.append(entry)
        self._kinds[entry.kind] += 1
        if self._live is None:
            console.say(f"{entry.kind}: {entry.text}")

    def show(self, controller: Controller) -> None:
        """Show what the controller knows after a look."""
        self.state = state_of(controller, list(self._log), self._kinds.copy())
        if time.monotonic() - self._written_at >= WRITE_S:
            self._written_at = time.monotonic()
            # A full disk does not end control.
            with suppress(NovaError), atomic_write(self._directory / STATE) as file:
                file.write(msgspec.json.encode(self.state))
        if self._live is not None:
            self._live.update(drawn(self.state), refresh=True)


def read_state(directory: Path) -> ControlState | None:
    """The state in a controller's directory, or None before its first look."""
    try:
        content = (directory / STATE).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(content, type=ControlState)


@contextmanager
def watching(directory: Path, *, lines: bool) -> Iterator[Watching]:
    """Show live tables in a terminal, and lines elsewhere.

    Args:
        directory: the controller's.
        lines: write lines in a terminal, too.
    """
    err = console.output(stderr=True)
    if lines or not err.is_terminal:
        yield Watching(None, directory)
        return
    from rich.live import Live

    with Live(console=err, auto_refresh=False) as live:
        yield Watching(live, directory)


def drawn(state: ControlState) -> RenderableType:
    """Hosts, results and log as they are now."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{', '.join(state.jobs)}{_arrivals(state)}", title_justify="left")
    for name in ("host", "taken by others", "counts as", "joins", ""):
        table.add_column(name, justify="left" if name in ("host", "") else "right")
    for host in state.hosts:
        table.add_row(
            host.name,
            "-" if host.taken is None else f"{100 * host.taken / host.cores:.0f} %",
            f"{100 * host.counts:.0f} %",
            str(host.joins or ""),
            "" if host.state == "up" else f"[red]{host.state}",
        )
    log = Text()
    for entry in state.log[-LINES:]:
        log.append(time.strftime("%H:%M:%S ", time.localtime(entry.at)), "dim")
        log.append(f"{entry.kind:<12}", COLOURS.get(entry.kind, ""))
        log.append(f"{entry.text}\n")
    return Group(table, log)


def _arrivals(state: ControlState) -> str:
    if not state.arrivals:
        return ""
    last = state.arrivals[-1]
    late = "" if last.p50_ms is None else f", {last.p50_ms:.0f} ms (99 %: {last.p99_ms:.0f} ms)"
    return f": {last.per_second:,.0f} results/s{late}"
