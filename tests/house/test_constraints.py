"""constraints.txt: a tested version of every package that Nova needs, and of no other."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .constraints import FILE, OURS, needed

ROOT = Path(__file__).parents[2]


def pins() -> dict[str, str]:
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    split = [line.split("==") for line in lines]
    return dict(split)


def declared() -> Iterator[Requirement]:
    for folder in (ROOT, ROOT / "research"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for group in (project["dependencies"], *project["optional-dependencies"].values()):
            yield from map(Requirement, group)


def test_every_dependency_is_pinned_to_a_version_that_is_allowed() -> None:
    pinned = pins()
    for one in declared():
        name = canonicalize_name(one.name)
        if name not in OURS:
            assert pinned.get(name), f"{name}: not in constraints.txt"
            assert one.specifier.contains(pinned[name]), f"{one}: pinned to {pinned[name]}"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="made with 3.11; others need others")
def test_nothing_else_is_pinned_and_nothing_is_left_out() -> None:
    assert set(pins()) == needed()


def test_what_is_tested_here_is_what_is_pinned() -> None:
    """Annoy is compiled, where there is a compiler."""
    here = {name: version(name) for name in pins() if name != "annoy"}
    assert here == {name: number for name, number in pins().items() if name != "annoy"}
