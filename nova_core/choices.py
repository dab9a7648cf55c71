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
            place: ``module:attribute``; the attribute can be iterated, or is a function that
                returns the names there are now.
        """
        self.case_sensitive = True
        self._place = place

    def __getattr__(self, name: str) -> Any:
        if name != "choices":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        module, _, attribute = self._place.partition(":")
        names = getattr(import_module(module), attribute)
        if callable(names):
            return tuple(names())
        self.choices = tuple(names)
        return self.choices
