"""Bounds of numbers, and numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 2**31 - 1  # what every library and engine takes
MOST_SEED = MOST
SEED = click.IntRange(0, MOST_SEED)


def at_least(least: int) -> click.IntRange:
    """Whole numbers from ``least`` to the greatest that every library and engine takes."""
    return click.IntRange(least, MOST)


class NumberRange(click.FloatRange):
    """A number between bounds, as click's, but not NaN, which click takes within any bounds."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number
