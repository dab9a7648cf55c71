"""Hostile input for the whole command line: nothing crashes, hangs or is taken for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from .uses import LEFT_OUT, NOT_READ, USES, command_of, commands

ROOT = Path(__file__).parents[2]


def fuzz(keep: Path, *arguments: str) -> None:
    """Run a campaign in an interpreter of its own, which makes children."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--keep", str(keep), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_every_command_is_attacked_or_left_out_with_a_reason() -> None:
    known = dict(commands())
    used = {command_of(use, known) for use in USES}
    assert used | set(LEFT_OUT) == set(known)
    assert not used & set(LEFT_OUT)


def test_every_option_that_takes_a_file_is_attacked() -> None:
    known = dict(commands())
    for name in {command_of(use, known) for use in USES}:
        lines = [use for use in USES if command_of(use, known) == name]
        for parameter in known[name].params:
            if not isinstance(parameter.type, click.Path) or parameter.name in NOT_READ:
                continue
            if isinstance(parameter, click.Option):
                assert any(set(parameter.opts) & set(use.words) for use in lines), (
                    f"{name}: no use has {parameter.opts}"
                )
            else:
                assert any(use.files for use in lines), f"{name}: no use reads a file"


def test_a_few_hostile_inputs(tmp_path: Path) -> None:
    fuzz(tmp_path, "--seed", "20", "--count", "15", "--jobs", "1")


@pytest.mark.e2e
def test_valid_input_is_taken(tmp_path: Path) -> None:
    fuzz(tmp_path, "--valid")


@pytest.mark.e2e
def test_hostile_inputs(tmp_path: Path) -> None:
    fuzz(tmp_path, "--seed", "20", "--count", "2000", "--seconds", "60")


@pytest.mark.e2e
def test_hostile_inputs_of_slow_commands(tmp_path: Path) -> None:
    fuzz(tmp_path, "--seed", "20", "--count", "60", "--slow", "--seconds", "30")
