"""How a strategy compares with the best of the others, setting by setting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from nova_harness.report.groups import Group, Setting

Metric = Literal["mean", "p9999", "throughput"]
METRICS: tuple[Metric, ...] = ("mean", "p9999", "throughput")
SUBJECT = "nova"
# Ratios closer to 1 than this are called equal: repetitions differ by as much.
EQUAL = 0.02
# From this share of missing results on, a mean is a lower bound.
MEAN_BOUND = 0.001


@dataclass(frozen=True)
class Value:
    """A figure of a group.

    Attributes:
        amount: ms, or results/s; infinite for a latency when nothing arrived.
        bound: whether a latency is only a lower bound, because missing results are not in it.
        due: results/s that keep up with the sources; more arrive only where some were late.
    """

    amount: float
    bound: bool = False
    due: float = math.inf

    @property
    def counted(self) -> float:
        """The amount for comparisons: no more than what is due."""
        return min(self.amount, self.due)


def value(group: Group, metric: Metric) -> Value:
    """A metric of a group."""
    if metric == "throughput":
        return Value(group.results_per_s, due=group.expected_per_s)
    if group.latency is None:
        return Value(math.inf, True)
    if metric == "mean":
        return Value(group.latency.mean, group.missing_share > MEAN_BOUND)
    return Value(group.latency.at(0.9999), group.is_bound(0.9999))


def best(groups: Iterable[Group], metric: Metric) -> Group | None:
    """The group with the least latency or the greatest throughput; None of none."""
    sign = -1.0 if metric == "throughput" else 1.0
    return min(groups, key=lambda group: sign * value(group, metric).counted, default=None)


@dataclass(frozen=True)
class Ratio:
    """How many times better the subject is than the best other strategy.

    Attributes:
        setting: of both strategies.
        metric: that is compared.
        factor: above 1 the subject is better: latency of the other over the subject's, throughput
            of the subject over the other's; infinite where the other delivers nothing.
        sign: ``≥`` or ``≤`` where missing results make the factor a bound, else empty.
        subject: the subject's figure.
        other: the best other strategy's figure.
        best_other: its name.
        kept_up: share of the results that were due which arrived in time, of the subject and of
            the best other strategy.
    """

    setting: Setting
    metric: Metric
    factor: float
    sign: str
    subject: Value
    other: Value
    best_other: str
    kept_up: tuple[float, float]

    @property
    def outcome(self) -> Literal["better", "equal", "worse"]:
        """The factor as a verdict."""
        if self.factor > 1 + EQUAL:
            return "better"
        return "worse" if self.factor < 1 - EQUAL else "equal"


def ratios(groups: Sequence[Group], subject: str) -> list[Ratio]:
    """The subject against the best of the others, by setting and metric.

    Settings in which the subject or all others did not run are left out.
    """
    comparisons = []
    for setting in dict.fromkeys(group.setting for group in groups):
        here = [group for group in groups if group.setting == setting]
        mine = next((group for group in here if group.strategy == subject), None)
        if mine is None:
            continue
        others = [group for group in here if group is not mine]
        for metric in METRICS:
            other = best(others, metric)
            if other is not None:
                comparisons.append(_ratio(mine, other, metric))
    return comparisons


def _ratio(mine: Group, other: Group, metric: Metric) -> Ratio:
    own, theirs = value(mine, metric), value(other, metric)
    factor = relative(own, theirs) if metric == "throughput" else relative(theirs, own)
    sign = ""
    if math.isfinite(factor) and own.bound != theirs.bound:
        sign = "≤" if own.bound else "≥"
    elif own.bound and theirs.bound:
        sign = "≈"
    kept_up = (mine.kept_up, other.kept_up)
    return Ratio(mine.setting, metric, factor, sign, own, theirs, other.strategy, kept_up)


def relative(a: Value, b: Value) -> float:
    """``a`` over ``b``; 1 where both are infinite or zero."""
    if a.counted == b.counted:
        return 1.0
    if b.counted == 0 or math.isinf(a.counted):
        return math.inf
    return a.counted / b.counted


def subject_of(strategies: Sequence[str], chosen: str | None = None) -> str | None:
    """A report's subject: the chosen strategy, or nova, or the first label that starts with it."""
    if chosen is not None:
        return chosen
    if SUBJECT in strategies:
        return SUBJECT
    return next((name for name in strategies if name.startswith(SUBJECT)), None)
