"""Without extras, every command works or names its extra in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .bare import LEFT_OUT, MORE
from .uses import USES, command_of, commands

ROOT = Path(__file__).parents[2]


def walk(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.bare", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_every_command_is_tried() -> None:
    known = dict(commands())
    tried = {command_of(use, known) for use in (*USES, *MORE)}
    assert tried | LEFT_OUT == set(known)
    assert not tried & LEFT_OUT


def test_commands_without_extras() -> None:
    walk()


@pytest.mark.e2e
def test_commands_of_a_bare_wheel(tmp_path: Path) -> None:
    clone, venv = tmp_path / "clone", tmp_path / "venv"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, clone], check=True)
    (wheel,) = tmp_path.glob("nova_placement-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    subprocess.run([*pip, "--python", venv / "bin/python", "install", wheel], check=True)
    walk("--nova", venv / "bin" / "nova", "--slow")
