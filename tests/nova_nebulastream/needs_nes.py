"""NebulaStream's programs, which Nova cannot install: tests that need them skip without."""

from __future__ import annotations

import pytest

from nova_nebulastream.home import HOME, NesHome


def need_home() -> NesHome:
    """The home, or skip."""
    home = NesHome.default()
    if home.path is None or not home.complete:
        pytest.skip(f"NebulaStream cannot be installed, and {HOME} names no home of it")
    return home
