"""Cross-validation: every query is predicted by a model that has not seen it.

A split keeps a tenth of the queries for tests. Several splits give more of them; a model is trained
for each. Shares of the training queries show what more traces would bring: a learning curve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError
from nova_research.costream.learned.model import Model
from nova_research.costream.learned.network import CLASSES, METRICS
from nova_research.costream.training.baselines import VECTORS, Trees
from nova_research.costream.training.dataset import Dataset, rows_for
from nova_research.costream.training.evaluate import predicted
from nova_research.costream.training.train import Settings, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_TRAINED = "not trained further"


@dataclass(frozen=True)
class Validation:
    """Predictions for traces of queries that were not trained with.

    Attributes:
        tests: the traces.
        values: per predictor and metric (n,) values; predictors are shares of the training queries
            such as ``25 %``, `NOT_TRAINED` and names of baselines.
        traces: mean number of traces that each predictor was trained with; none of a baseline.
    """

    tests: Dataset
    values: Mapping[str, Mapping[str, np.ndarray]]
    traces: Mapping[str, float]


def validate(
    dataset: Dataset,
    settings: Settings,
    *,
    begin: Model | None = None,
    splits: int = 4,
    shares: Sequence[float] = (1.0,),
    baselines: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Validation:
    """Train a model for each split and share, and predict the split's queries for tests.

    Args:
        dataset: all traces.
        settings: of the training; its split is the first one.
        begin: model to train further, which has not seen the traces; None trains from scratch.
        splits: number of splits; a query is predicted in the first that keeps it for tests.
        shares: of the training queries.
        baselines: whether trees are trained, too.
        say: called with a line of text per epoch.

    Raises:
        NovaError: where a split has no queries to train or validate with, or for tests.
    """
    parts: list[tuple[Dataset, dict[str, Mapping[str, np.ndarray]]]] = []
    trained: dict[str, list[int]] = {}
    seen: set[str] = set()
    for split in range(settings.split, settings.split + splits):
        tests = dataset.take(rows_for(dataset, "test", split))
        tests = tests.take(~np.isin(tests.queries, sorted(seen)))
        if not len(tests):
            raise NovaError(f"split {split}: no query for tests; more queries are needed")
        seen.update(tests.queries.tolist())
        values: dict[str, Mapping[str, np.ndarray]] = {}
        if begin is not None:
            values[NOT_TRAINED] = predicted(begin, tests)
            trained.setdefault(NOT_TRAINED, []).append(0)
        for share in shares:
            name = f"{100 * share:g} %"
            of_share = replace(settings, split=split, share=share)
            about = partial(_about, say, f"split {split}, {name}")
            model = train(dataset, of_share, begin=begin, say=about)
            values[name] = predicted(model, tests)
            trained.setdefault(name, []).append(sum(dict(model.facts or {})["traces"].values()))
        if baselines:
            taught, held = (dataset.take(rows_for(dataset, p, split)) for p in
                            ("train", "validation"))  # fmt: skip
            for vector in VECTORS:
                values[vector] = Trees.trained(vector, taught, held).values(tests)
        parts.append((tests, values))
    order = np.concatenate([_rows(dataset, tests) for tests, _ in parts])
    together = {
        name: {m: np.concatenate([values[name][m] for _, values in parts]) for m in METRICS}
        for name in parts[0][1]
    }
    traces = {name: float(np.mean(counts)) for name, counts in trained.items()}
    return Validation(dataset.take(order), together, traces)


def _about(say: Callable[[str], None], what: str, text: str) -> None:
    say(f"{what}: {text}")


def _rows(dataset: Dataset, part: Dataset) -> np.ndarray:
    row = {name: number for number, name in enumerate(dataset.ids.tolist())}
    return np.array([row[name] for name in part.ids.tolist()], np.int64)


def draw_curve(scores: Mapping[str, Mapping[str, Mapping[str, float]]],
               traces: Mapping[str, float]) -> Figure:  # fmt: skip
    """The learning curve: scores over the number of traces that models were trained with.

    Args:
        scores: of each predictor, see `evaluate.scores`.
        traces: of each predictor, see `Validation`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3), layout="constrained", facecolor="white")
    names = sorted(traces, key=lambda name: traces[name])
    for axes, metric in zip(figure.subplots(1, len(METRICS)), METRICS, strict=True):
        kinds: dict[str, Any] = (
            {"accuracy": "o-"} if metric in CLASSES else {"q50": "o-", "q95": "s--"}
        )
        for kind, style in kinds.items():
            values = [scores[name][metric][kind] for name in names]
            axes.plot([traces[name] for name in names], values, style, label=kind)
        axes.set_title(metric.removesuffix("_ms").replace("_", " "), fontsize=9)
        axes.set_xlabel("traces trained with", fontsize=8)
        axes.legend(frameon=False, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
