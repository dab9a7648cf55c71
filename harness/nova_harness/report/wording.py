"""Figures in words."""

from __future__ import annotations

import math

from nova_core.console import number
from nova_harness.report.comparison import Value


def milliseconds(amount: float) -> str:
    """A latency with about three digits."""
    if math.isinf(amount):
        return "nothing arrived"
    digits = 0 if abs(amount) >= 100 else 1 if abs(amount) >= 10 else 2
    return number(amount, digits)


def times(factor: float) -> str:
    """A ratio with two or three digits."""
    if math.isinf(factor):
        return "∞"
    return number(factor, 0 if factor >= 100 else 1 if factor >= 10 else 2)


def percent(*shares: float) -> str:
    """Shares as a span of per cent, at most 100 each."""
    low, high = (f"{min(100, 100 * share):.0f}" for share in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low}–{high} %"


def count(amount: float, one: str, many: str = "") -> str:
    """An amount of things."""
    return f"{amount:,.0f} {one if amount == 1 else many or one + 's'}"


def shown(figure: Value) -> str:
    """A latency, marked where it is a bound."""
    if math.isinf(figure.amount):
        return "–"
    return ("≥" if figure.bound else "") + milliseconds(figure.amount)
