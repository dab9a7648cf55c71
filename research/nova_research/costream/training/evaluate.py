"""Quality of predictions: q-errors and accuracies by group, and the noise of repeated runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_research.costream.learned.network import CLASSES, METRICS, UNITS
from nova_research.costream.training.dataset import Dataset

if TYPE_CHECKING:
    from nova_research.costream.learned.graph import Graph
    from nova_research.costream.learned.model import Model

Values = Mapping[str, np.ndarray]

WINDOWS = ((0.0, "no window"), (1.0, "up to 1 s"), (4.0, "up to 4 s"), (np.inf, "longer"))
"""Upper bounds of classes of windows, s, and their names; windows dominate latencies."""


def predicted(model: Model, dataset: Dataset) -> Values:
    """Per metric (n,) values that a model predicts for traces."""
    first = [0]
    for number in range(1, len(dataset)):
        same = dataset.graphs[number] is dataset.graphs[number - 1]
        first.append(first[-1] if same else number)
    rows, row_of = np.unique(np.array(first, np.int64)[: len(dataset)], return_inverse=True)
    graphs = [dataset.graphs[row] for row in rows.tolist()]
    # Predictions are for every query of every graph.
    begin = np.cumsum([0, *(len(graph.sinks) for graph in graphs)])
    predictions = model.predict(graphs)
    at = begin[row_of] + dataset.sinks
    return {metric: predictions.value(metric)[at] for metric in METRICS}


def q_errors(metric: str, predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """max(p / t, t / p) of each, at least 1; amounts below a unit count as one.

    Args:
        metric: decides the unit, see `UNITS`.
        predicted: (n,).
        measured: (n,) above 0.
    """
    least = 1 / UNITS[metric]
    p, t = np.maximum(predicted, least), np.maximum(measured, least)
    return np.asarray(np.maximum(p / t, t / p))


def balanced_accuracy(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Mean share of right predictions per class; NaN where a class is missing.

    It is the expected accuracy on data balanced by drawing as many of each class.
    """
    shares = [
        float((predicted[measured == value] == value).mean())
        for value in (0, 1)
        if (measured == value).any()
    ]
    return float(np.mean(shares)) if len(shares) == 2 else float("nan")


def scores(values: Values, dataset: Dataset) -> dict[str, dict[str, float]]:
    """Per metric ``q50`` and ``q95``, or ``accuracy``, and the number of traces (``count``)."""
    by_metric = {}
    for metric in METRICS:
        label = dataset.labels[metric]
        known = np.isfinite(label)
        one: dict[str, float] = {"count": int(known.sum())}
        if metric in CLASSES:
            one["accuracy"] = balanced_accuracy(values[metric][known] > 0.5, label[known])
        else:
            errors = q_errors(metric, values[metric][known], label[known])
            one["q50"], one["q95"] = quantiles(errors)
        by_metric[metric] = one
    return by_metric


def quantiles(errors: np.ndarray) -> tuple[float, float]:
    """Median and 95th percentile of q-errors; NaN where there are none."""
    if len(errors) == 0:
        return float("nan"), float("nan")
    return float(np.median(errors)), float(np.quantile(errors, 0.95))


def score_text(scores: Mapping[str, float]) -> str:
    """Scores of one metric in a table: ``Q50/Q95``, or the accuracy."""
    if "accuracy" in scores:
        value = scores["accuracy"]
        return "-" if value != value else f"{100 * value:.1f} %"
    return "-" if scores["q50"] != scores["q50"] else f"{scores['q50']:.2f}/{scores['q95']:.2f}"


def noise(dataset: Dataset) -> dict[str, dict[str, float]]:
    """Scores of predicting a repeated trace by the labels of its first run.

    Returns:
        As `scores`; accuracy is how often both runs agree, by class of the first.
    """
    row = {str(name): number for number, name in enumerate(dataset.ids)}
    pairs = [
        (row[str(first)], number)
        for number, first in enumerate(dataset.repeat_of)
        if str(first) in row
    ]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    first = {metric: values[ends[:, 0]] for metric, values in dataset.labels.items()}
    second = dataset.take(ends[:, 1])
    both = {
        metric: np.where(np.isfinite(first[metric]), second.labels[metric], np.nan)
        for metric in METRICS
    }
    repeats = replace(second, labels=both)
    return scores({m: np.nan_to_num(values) for m, values in first.items()}, repeats)


def window_class(seconds: float) -> str:
    """The name of the class of a query whose longest window has this length."""
    return next(name for bound, name in WINDOWS if seconds <= bound)


def _together(graph: Graph) -> str:
    """How many queries share the hosts."""
    return "1 query" if len(graph.sinks) == 1 else f"{len(graph.sinks)} queries"


GROUPS: Mapping[str, Callable[[Dataset], np.ndarray]] = {
    "all": lambda data: np.full(len(data), "all"),
    "structure": lambda data: data.structure,
    "window": lambda data: np.array([window_class(one) for one in data.window.tolist()], np.str_),
    "together": lambda data: np.array([_together(graph) for graph in data.graphs], np.str_),
}


def report(predictors: Mapping[str, Values], dataset: Dataset) -> list[dict[str, Any]]:
    """Scores of predictors, origin by origin, of all traces and by group.

    Args:
        predictors: values per metric ((n,) for the dataset's rows) by name.
        dataset: the predicted traces.

    Returns:
        Rows of ``origin``, ``by`` (a name in `GROUPS`), ``group``, ``predictor`` (``noise`` is that
        of repeated traces) and ``scores``.
    """
    rows: list[dict[str, Any]] = []
    for origin in np.unique(dataset.origin).tolist():
        for by, key in GROUPS.items():
            groups = key(dataset)
            for group in np.unique(groups[dataset.origin == origin]).tolist():
                mine = np.flatnonzero((dataset.origin == origin) & (groups == group))
                part = dataset.take(mine)
                place = {"origin": origin, "by": by, "group": group}
                for name, values in predictors.items():
                    some = {metric: values[metric][mine] for metric in METRICS}
                    rows.append({**place, "predictor": name, "scores": scores(some, part)})
                rows.append({**place, "predictor": "noise", "scores": noise(part)})
    return rows
