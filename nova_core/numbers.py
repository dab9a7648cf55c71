"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """A number between bounds, as click's; NaN, which is within any bounds for click, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number
