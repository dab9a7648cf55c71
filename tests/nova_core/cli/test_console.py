"""What is printed, and how numbers read."""

from __future__ import annotations

import io
import json
import math
import warnings

import numpy as np
import pytest
from rich.console import Console

from nova_core import console


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1.25, 1, "1.2"),
        (1234567.0, 1, "1,234,567"),
        (1234.5, 1, "1,234.5"),
        (12.0, 0, "12"),
        (math.inf, 1, "unlimited"),
        (math.nan, 1, "-"),
        (0, 0, "0"),
        (-0.01, 1, "0.0"),
    ],
)
def test_numbers(value: float, digits: int, text: str) -> None:
    assert console.number(value, digits) == text


def test_shares() -> None:
    assert console.share(1, 4) == "25 %"
    assert console.share(1, 0) == "-"


def test_json_holds_arrays_and_no_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json(
        {"a": np.arange(2), "b": math.inf, "c": np.float64(1.5), "d": np.int64(3), "e": [math.nan]}
    )
    assert json.loads(capsys.readouterr().out) == {
        "a": [0, 1],
        "b": None,
        "c": 1.5,
        "d": 3,
        "e": [None],
    }


def test_messages_are_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.fail("a\n  b")
    console.warn("c")
    console.say("d")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "nova: error: a b\nnova: warning: c\nnova: d\n"


def test_warnings_become_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with console.warnings_as_lines():
        warnings.warn("the matrix is lopsided", stacklevel=1)
    assert capsys.readouterr().err == "nova: warning: the matrix is lopsided\n"


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(progress: console.Progress) -> None:
        progress(1, 2)
        progress.step("half of it")

    with console.progress("working") as progress:
        work(progress)
    assert capsys.readouterr().err == "nova: half of it\n"
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(console, "output", lambda **_: terminal)
    with console.progress("working") as progress:
        work(progress)
    assert "working: half of it" in screen.getvalue()
    assert " 50%" in screen.getvalue()
    assert capsys.readouterr().err == ""


def test_tables_show_brackets_as_they_are() -> None:
    table = console.table("a[/b]", ["what"], [("[red]c",)])
    screen = Console(file=io.StringIO(), width=80)
    screen.print(table)
    assert isinstance(screen.file, io.StringIO)
    assert "a[/b]" in screen.file.getvalue() and "[red]c" in screen.file.getvalue()
