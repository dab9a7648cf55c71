"""The public front: each name is there, lazily, and type checkers see the same names."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import nova_core


def typed_names() -> dict[str, str]:
    """Module of each name that type checkers are shown."""
    tree = ast.parse(Path(nova_core.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.asname or "": f"{node.module}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def test_type_checkers_see_what_is_there() -> None:
    modules = {name: f"nova_core.{module}" for name, module in nova_core._MODULE_OF.items()}
    assert typed_names() == modules


@pytest.mark.parametrize("name", nova_core.__all__)
def test_each_name_is_that_of_its_module(name: str) -> None:
    assert getattr(nova_core, name) is getattr(import_module(typed_names()[name]), name)
    assert name in dir(nova_core)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'nova_core' has no attribute 'nonsense'"):
        nova_core.nonsense  # noqa: B018


def test_errors_load_nothing_heavy() -> None:
    code = "from nova_core import NovaError; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {"numpy", "msgspec", "numba", "click"}.isdisjoint(run.stdout.split())
