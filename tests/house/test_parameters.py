"""No function has more parameters than a reader can keep apart."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("nova_core", "adapters", "workloads", "testbed", "harness", "research", "benchmarks")
MOST = 10


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller has to know; ``*args`` and ``**kwargs`` are one each."""
    taken = function.args
    named = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs]
    own = bool(named) and named[0].arg in ("self", "cls")
    return len(named) - own + (taken.vararg is not None) + (taken.kwarg is not None)


def test_no_function_has_more_than_ten_parameters() -> None:
    wide = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                if function and parameters(node) > MOST:
                    wide.add(f"{path.relative_to(ROOT).as_posix()}:{node.name}")
    assert not wide
