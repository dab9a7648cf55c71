"""Tests that drive Storm, where it is installed; in CI they install it."""

from __future__ import annotations

import os

import pytest

from nova_storm.home import StormHome


def require() -> StormHome:
    """Skip, loudly, where Storm is not installed; compile what has changed since it was."""
    home = StormHome.default()
    if not home.installed and not os.environ.get("CI"):
        pytest.skip("needs Storm: run `nova engines install storm`")
    home.install()
    return home
