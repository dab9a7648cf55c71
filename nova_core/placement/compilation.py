"""A status line while numba compiles kernels, so that a first run does not seem to hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from nova_core.kernel_cache import when_numba_is_there

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

PATIENCE = 2.0
MESSAGE = "compiling kernels, once per version"


class _Announcer:
    """Shows a status from ``patience`` seconds after the first compilation to the end."""

    def __init__(self, console: Console, patience: float) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._timer = threading.Timer(patience, self._announce)
        self._timer.daemon = True
        self._names: list[str] = []
        self._count = 0
        self._status: Status | None = None
        self._due = False

    def start(self, name: str) -> None:
        with self._lock:
            if not self._names and not self._due and not self._timer.is_alive():
                self._timer.start()
            self._count += not self._names or name != self._names[-1]
            self._names.append(name)
            if self._due:
                self._show()

    def end(self) -> None:
        with self._lock:
            self._names.pop()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._due = False
            if self._status is not None:
                self._status.stop()

    def _announce(self) -> None:
        with self._lock:
            self._due = True
            if self._names:
                self._show()

    def _show(self) -> None:
        """Show the outermost kernel: the inner ones are its helpers."""
        text = f"{MESSAGE}: {self._count} so far ({self._names[0]})"
        if self._status is not None:
            self._status.update(text)
            return
        self._status = self._console.status(text)
        if self._console.is_terminal:
            self._status.start()
        else:
            self._console.print(f"nova: {text}")


@contextmanager
def announce_compilation(console: Console, patience: float = PATIENCE) -> Iterator[None]:
    """Show on ``console`` which kernel numba compiles, if that takes longer than ``patience``.

    Args:
        console: output, e.g. a rich console on stderr. A terminal gets a temporary status line;
            any other output gets one line.
        patience: seconds from the first compilation to the status line.
    """
    announcer = _Announcer(console, patience)

    def on_event(event: Any) -> None:
        if event.is_start:
            announcer.start(event.data["dispatcher"].py_func.__name__)
        else:
            announcer.end()

    with ExitStack() as stack:
        stack.callback(announcer.close)
        stack.enter_context(compilations(on_event))
        yield


@contextmanager
def compilations(on_event: Callable[[Any], None]) -> Iterator[None]:
    """Pass on numba's events of compilations, without loading numba before kernels do."""
    with ExitStack() as stack:
        open_ = True

        def listen() -> None:
            if not open_:
                return
            from numba.core import event

            class Listener(event.Listener):
                """Forwards numba's events."""

                on_start = on_end = staticmethod(on_event)

            stack.enter_context(event.install_listener("numba:compile", Listener()))

        when_numba_is_there(listen)
        try:
            yield
        finally:
            open_ = False


class CompileTime:
    """Seconds that compilations took, those within others counted once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._begin = 0, 0.0

    def __call__(self, event: Any) -> None:
        """Take in an event."""
        self._depth += 1 if event.is_start else -1
        if event.is_start and self._depth == 1:
            self._begin = time.perf_counter()
        elif self._depth == 0:
            self.seconds += time.perf_counter() - self._begin
