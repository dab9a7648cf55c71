"""No program that Nova starts takes Python modules from the directory it happens to run in."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_harness.bench import kernels
from nova_harness.bench.base import measured
from nova_testbed.rack import privileges

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("nova_core", "adapters", "workloads", "testbed", "harness", "research", "benchmarks")


def commands(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines and words of command lines that a file has: lists, tuples and calls of constants."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.List | ast.Tuple):
            parts = node.elts
        elif isinstance(node, ast.Call) and not ast.unparse(node.func).startswith("click."):
            parts = node.args
        else:
            continue
        yield (
            node.lineno,
            [
                part.value
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                else ast.unparse(part)
                for part in parts
            ],
        )


def unsafe(words: list[str]) -> bool:
    """Whether a command runs a module, or code, with the current directory on the path."""
    if any("add_argument" in word for word in words):
        return False
    python = any("executable" in word or "python" in word for word in words)
    runs = "-m" in words or ("-c" in words and python)
    return runs and python and not {"-P", "-I"} & set(words)


def test_every_python_is_started_without_the_current_directory() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {' '.join(words)}"
        for room in ROOMS
        for file in sorted((ROOT / room).rglob("*.py"))
        if "tests" not in file.relative_to(ROOT).parts
        for line, words in commands(file)
        if unsafe(words)
    ]
    assert found == []
    launcher = (ROOT / "nova").read_text()
    assert not re.search(r'"\$(base|python)" -m (venv|pip)', launcher)


def test_the_check_sees_what_it_looks_for(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        'run([sys.executable, "-m", "venv"])\n'
        'exec(sys.executable, "-m", name)\n'
        '[str(home.python), "-m", "x"]\n'
        '[python, "-P", "-m", "venv"]\n'
        '["chmod", "-m", "x"]\n'
    )
    assert {line for line, words in commands(file) if unsafe(words)} == {1, 2, 3}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory that has modules of the names that Nova's programs import."""
    for name in ("venv", "pip", "pickle", "nova_core", "nova_testbed", "nova_harness", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'taken')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_benchmark_runs_nothing_from_the_current_directory(hostile: Path) -> None:

    case = kernels.Case(nodes=400, repeat=1)
    assert measured(kernels.__name__, [case], kernels.Measurement)
    assert not (hostile / "taken").exists()


def test_sudo_gets_no_path_of_the_current_directory(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hostile / "bin").mkdir()
    sudo = hostile / "bin" / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$2" = true ] || shift && exec "$@"\n')
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{hostile / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "path", ["", str(hostile), *sys.path])
    started = []
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> object:
        started.append(command)
        return real(["true"], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(privileges, "sudo_works", lambda: True)
    with pytest.raises(privileges.RackError):
        privileges.as_root("status", {}, object)
    (command,) = started
    assert "-P" in command
    (path,) = (word for word in command if word.startswith("PYTHONPATH="))
    assert str(hostile) not in path.removeprefix("PYTHONPATH=").split(":")
