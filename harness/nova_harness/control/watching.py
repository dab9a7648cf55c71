"""The controller in a terminal: hosts, what they count as, and the last lines of its log."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from nova_engines.dataflow import JOIN

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nova_harness.control.controller import Controller, Entry

LINES = 10
COLOURS = {
    "noticed": "yellow",
    "refused": "magenta",
    "failed": "red",
    "waiting": "red",
    "handed-over": "green",
    "recovered": "green",
    "restarted": "cyan",
}


class Watching:
    """What `nova control run` shows while it runs."""

    def __init__(self) -> None:
        self._lines: deque[Entry] = deque(maxlen=LINES)

    def note(self, entry: Entry) -> None:
        """Keep a line of the log."""
        self._lines.append(entry)

    def draw(self, controller: Controller) -> RenderableType:
        """Hosts and log as they are now."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"job {controller.running.job.job}", title_justify="left")
        for name in ("host", "taken by others", "counts as", "joins", ""):
            table.add_column(name, justify="left" if name in ("host", "") else "right")
        joins = Counter(
            one.node for one in controller.running.dataflow.operators if one.kind == JOIN
        )
        now, counted = time.monotonic(), controller.decider.counted()
        for name, view in controller.views().items():
            silent = view.silent(now)
            state = "silent" if silent else "worker lost" if view.alive is False else ""
            taken = (
                "-" if silent or view.taken is None else f"{100 * view.taken / view.cores:.0f} %"
            )
            share = counted.get(name)
            table.add_row(
                name,
                taken,
                "-" if share is None else f"{100 * share:.0f} %",
                str(joins[name] or ""),
                f"[red]{state}",
            )
        log = Text()
        for entry in self._lines:
            log.append(time.strftime("%H:%M:%S ", time.localtime(entry.at)), "dim")
            log.append(f"{entry.kind:<12}", COLOURS.get(entry.kind, ""))
            log.append(f"{entry.text}\n")
        return Group(table, log)
