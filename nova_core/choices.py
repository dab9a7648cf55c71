"""Options whose choices are a library's names, which ``nova --help`` does not load."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click


class LazyChoice(click.Choice[str]):
    """One of the names at ``module:attribute``, which is imported once the names are needed."""

    def __init__(self, place: str) -> None:
        """Remember where the names are.

        Args:
            place: ``module:attribute``; the attribute can be iterated.
        """
        self.case_sensitive = True
        self._place = place

    def __getattr__(self, name: str) -> Any:
        if name != "choices":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        module, _, attribute = self._place.partition(":")
        self.choices = tuple(getattr(import_module(module), attribute))
        return self.choices
