"""The notice that kernels are being compiled."""

from __future__ import annotations

import io
import time

import numba
from rich.console import Console

from nova_core.placement.compilation import announce_compilation


def listen(patience: float, *, terminal: bool = False) -> tuple[Console, io.StringIO, object]:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100)
    return console, stream, announce_compilation(console, patience)


def fresh_kernel():
    @numba.njit
    def fresh(x):
        total = 0.0
        for i in range(x):
            total += i**0.5
        return total

    return fresh


def test_a_slow_compilation_is_announced_with_the_kernel() -> None:
    _, stream, announced = listen(0.0)
    with announced:
        fresh_kernel()(3)
    said = stream.getvalue()
    assert "compiling kernels, once per version: 1 so far (fresh)" in said
    assert said.count("\n") == 1


def test_a_quick_one_is_not() -> None:
    _, stream, announced = listen(60.0)
    with announced:
        fresh_kernel()(3)
    assert stream.getvalue() == ""


def test_what_is_compiled_already_is_not() -> None:
    kernel = fresh_kernel()
    kernel(3)
    _, stream, announced = listen(0.0)
    with announced:
        kernel(4)
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_status_that_goes_away() -> None:
    _, stream, announced = listen(0.0, terminal=True)
    with announced:
        fresh_kernel()(3)
    assert "(fresh)" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")  # the line is wiped


def test_nothing_is_said_afterwards() -> None:
    _, stream, announced = listen(0.2)
    with announced:
        pass
    fresh_kernel()(3)
    time.sleep(0.3)
    assert stream.getvalue() == ""
