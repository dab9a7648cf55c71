"""Tables III to VI of Costream: predictions for queries, hardware and structures never seen.

The authors' traces are not available: published values stand beside those of our own traces, from
the fitted simulator in the paper's ranges and, if given, from a rack.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from nova_core.errors import NovaError
from nova_research.costream.corpus.random_queries import BENCHMARKS
from nova_research.costream.corpus.ranges import PAPER, Ranges
from nova_research.costream.learned.features import HOST, KINDS
from nova_research.costream.learned.graph import Graph
from nova_research.costream.learned.network import CLASSES, METRICS
from nova_research.figures.base import Column, Figure, Run, Table, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from nova_research.costream.training.dataset import Dataset

PAPER_MODEL, PAPER_FLAT = "Costream, published", "flat vector, published"
MODEL = "network"
FILTER = KINDS.index("filter")
LONGEST_CHAIN = 4
# Ranges of Tables IV and V; all other values are as in Table II.
BETWEEN = replace(
    PAPER,
    memory_mib=(1500, 3000, 6000, 12000, 20000, 28000),
    cpu=(0.75, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5),
    mbit=(35, 75, 150, 250, 550, 1200, 1900, 4800, 8000),
    latency_ms=(3, 7, 15, 30, 60, 120),
)


@dataclass(frozen=True)
class Beyond:
    """Hardware outside the range of training, in one feature (Table V).

    Attributes:
        feature: of hosts, see `nova_research.costream.learned.features.HOST`.
        stronger: whether hosts are stronger than those of training.
        bound: of the feature; no host of training is beyond it.
        drawn: ranges of the evaluated hosts.
    """

    feature: str
    stronger: bool
    bound: float
    drawn: Ranges

    @property
    def name(self) -> str:
        """The case's name."""
        return f"{'stronger' if self.stronger else 'weaker'} {self.feature}"

    def trained(self, graph: Graph) -> bool:
        """Whether training may use a plan: none of its hosts is outside the bound."""
        value = 10 ** graph.hosts[:, HOST.index(self.feature)] - 1
        if self.feature in ("latency", "bandwidth"):
            # A host that sends nothing has no link.
            value = value[graph.hosts[:, HOST.index("latency")] > 0]
        # A stronger host has a larger value, except for latency.
        below = self.stronger != (self.feature == "latency")
        slack = 1e-6 * self.bound
        behind = value > self.bound + slack if below else value < self.bound - slack
        return not bool(behind.any())


BEYOND = (
    Beyond("memory", True, 16_800, replace(PAPER, memory_mib=(24000, 32000))),
    Beyond("cpu", True, 600, replace(PAPER, cpu=(7, 8))),
    Beyond("bandwidth", True, 3200, replace(PAPER, mbit=(6400, 10000))),
    Beyond("latency", True, 5, replace(PAPER, latency_ms=(1, 2))),
    Beyond("memory", False, 4_100, replace(PAPER, memory_mib=(1000, 2000))),
    Beyond("cpu", False, 200, replace(PAPER, cpu=(0.5, 1))),
    Beyond("bandwidth", False, 100, replace(PAPER, mbit=(25, 50))),
    Beyond("latency", False, 40, replace(PAPER, latency_ms=(80, 160))),
)

# Q50 and Q95 of throughput, end-to-end and processing latency; accuracy of back-pressure and
# success, %. None where there is nothing to judge by, such as a class that is missing.
Values = tuple[float | None, ...]
PUBLISHED: Mapping[str, Mapping[str, Values]] = {
    "never seen": {
        PAPER_MODEL: (1.33, 5.60, 1.37, 13.28, 1.46, 13.90, 87.89, 94.96),
        PAPER_FLAT: (9.92, 590.34, 24.96, 827.59, 22.87, 458.14, 68.70, 76.85),
    },
    "between": {
        PAPER_MODEL: (1.37, 8.28, 1.59, 25.33, 1.54, 17.78, 88.04, 87.13),
        PAPER_FLAT: (15.63, 282.50, 63.79, 869.85, 27.85, 282.50, 72.83, 68.32),
    },
    "stronger memory": {PAPER_MODEL: (1.66, 5.88, 1.85, 29.08, 1.88, 11.32, 85.37, 77.00)},
    "stronger cpu": {PAPER_MODEL: (1.72, 9.40, 1.67, 9.43, 1.75, 6.81, 86.59, 93.14)},
    "stronger bandwidth": {PAPER_MODEL: (1.48, 6.55, 1.75, 17.18, 1.63, 13.89, 86.59, 87.25)},
    "stronger latency": {PAPER_MODEL: (1.52, 5.60, 3.55, 30.90, 3.83, 19.43, 88.89, 92.93)},
    "weaker memory": {PAPER_MODEL: (1.79, 7.60, 1.72, 13.69, 1.49, 13.27, 91.03, 78.79)},
    "weaker cpu": {PAPER_MODEL: (1.61, 13.16, 2.75, 111.53, 2.96, 77.56, 75.00, 86.67)},
    "weaker bandwidth": {PAPER_MODEL: (1.42, 5.30, 1.46, 5.30, 1.68, 12.94, 91.92, 92.59)},
    "weaker latency": {PAPER_MODEL: (3.25, 33.65, 2.10, 54.13, 6.09, 406.83, 67.82, 74.51)},
    "2 filters": {
        PAPER_MODEL: (2.74, 64.35, 1.68, 21.81, 1.69, 48.26, 88, 100),
        PAPER_FLAT: (5.52, 244.38, 259.98, 2302.38, 48.93, 341.70, 68, 4),
    },
    "3 filters": {
        PAPER_MODEL: (2.87, 75.29, 2.15, 11.81, 1.64, 5.41, 85, 100),
        PAPER_FLAT: (18.82, 1078.26, 536.38, 1855.05, 63.62, 266.80, 79, 6),
    },
    "4 filters": {
        PAPER_MODEL: (5.51, 445.87, 2.68, 23.99, 1.61, 5.38, 82, 100),
        PAPER_FLAT: (82.71, 3672.13, 538.10, 1877.68, 55.27, 270.36, 79, 6),
    },
    "advertisement": {
        PAPER_MODEL: (1.98, 11.01, 2.02, 15.08, 2.27, 15.01, 85, 100),
        PAPER_FLAT: (3.12, 46.11, 1.32, 40.59, 3.62, 41.37, 80, 100),
    },
    "spikes": {
        PAPER_MODEL: (3.67, 66.48, 1.41, 17.55, 1.63, 12.92, 78, 100),
        PAPER_FLAT: (274.04, 891.99, 2.28, 1017.96, 5.32, 339.82, 55, 0),
    },
    "grid, global": {
        PAPER_MODEL: (1.44, 5.98, 2.01, 50.17, 1.48, 12.70, 81, 100),
        PAPER_FLAT: (104.79, 106.06, 118.77, 639.79, 35.48, 161.60, 29, 100),
    },
    "grid, local": {
        PAPER_MODEL: (1.43, 10.51, 1.67, 31.00, 1.54, 7.96, 86, 100),
        PAPER_FLAT: (104.79, 106.12, 143.22, 669.20, 37.57, 174.38, 23, 100),
    },
}


# Predicted values per metric of some traces, by predictor.
Predictors = dict[str, Callable[["Dataset"], Mapping[str, np.ndarray]]]


class CostreamParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Parameters of the tables.

    Attributes:
        rack: traces of a rack; None for simulated ones alone.
        traces: simulated ones in the paper's ranges, of which 80 % are trained with.
        tests: simulated ones of each kind of hardware that is not trained with.
        epochs: of training at most.
        members: of ensembles.
        seed: of traces and training.
    """

    rack: (
        Annotated[
            str, Meta(min_length=1, description="Traces of `nova corpus run`: directory or file")
        ]
        | None
    ) = None
    traces: Annotated[int, Meta(ge=100, description="Simulated traces to learn from")] = 12_000
    tests: Annotated[int, Meta(ge=10, description="Simulated traces of unseen hardware")] = 400
    epochs: Annotated[int, Meta(ge=1, description="Of training, at most")] = 60
    members: Annotated[int, Meta(ge=1, le=32, description="Networks of an ensemble")] = 3
    seed: int = 0


@dataclass(frozen=True)
class Case:
    """Traces to predict, and traces to learn from.

    Attributes:
        table: of the paper.
        origin: of the traces that are predicted: ``simulator`` or ``rack``.
        name: as in `PUBLISHED`.
        learnt: traces of training and validation; the queries of tests are left out.
        tests: traces that are predicted.
    """

    table: str
    origin: str
    name: str
    learnt: Dataset
    tests: Dataset


@dataclass(frozen=True)
class Score:
    """Score of one predictor in one case: q-errors, and accuracies on balanced data in percent.

    Attributes:
        table: of the paper.
        case: its name.
        origin: of the traces; ``paper`` for published values.
        predictor: its name.
        traces: how many were predicted; None for published values.
        throughput_q50: median of throughput's q-errors; the others likewise.
    """

    table: str
    case: str
    origin: str
    predictor: str
    traces: int | None
    throughput_q50: float | None
    throughput_q95: float | None
    e2e_latency_q50: float | None
    e2e_latency_q95: float | None
    processing_latency_q50: float | None
    processing_latency_q95: float | None
    back_pressure: float | None
    success: float | None


class Costream(Figure[CostreamParameters, list[Score]]):
    """Predictions for queries, hardware and structures never seen, beside published ones.

    Without `rack` all traces are simulated, and a simulator that is scored by itself proves nothing
    about engines. Corpora and trained models are kept: the same command resumes.
    """

    name = "costream"
    source = "Costream (ICDE 2024), sections VII-A and VII-C to E, Tables III to VI"
    Parameters = CostreamParameters
    published = PUBLISHED
    quick: ClassVar = {"traces": 600, "tests": 40, "epochs": 5, "members": 1}

    def run(self, parameters: CostreamParameters, run: Run) -> list[Score]:
        """Simulate, train a model for every case, and predict."""
        # Report missing packages before minutes of simulation.
        for module in ("baselines", "train"):
            import_module(f"nova_research.costream.training.{module}")
        if run.kept is None:
            with tempfile.TemporaryDirectory(prefix="nova-costream-") as directory:
                return _scores(parameters, replace(run, kept=Path(directory)))
        return _scores(parameters, run)

    def tables(self, result: list[Score]) -> list[Table]:
        """A row per predictor and case."""
        columns: dict[str, Column] = {
            "table": "table",
            "case": "case",
            "traces of": "origin",
            "predictor": "predictor",
            ">traces": "traces",
            ">T 50": ("throughput_q50", 2),
            ">T 95": ("throughput_q95", 2),
            ">L_e 50": ("e2e_latency_q50", 2),
            ">L_e 95": ("e2e_latency_q95", 2),
            ">L_p 50": ("processing_latency_q50", 2),
            ">L_p 95": ("processing_latency_q95", 2),
            ">back-pressure, %": ("back_pressure", 1),
            ">success, %": ("success", 1),
        }
        caption = "50, 95: median and 95th percentile of q-errors; accuracies on balanced data"
        return [listed("costream", "Costream's tables", result, columns, caption)]

    def words(self, result: list[Score]) -> list[str]:
        """Limits of the numbers."""
        if any(one.origin == "rack" for one in result):
            return ["published values are of other traces, which are not available"]
        return [
            "published values are of other traces, on an engine, which are not available. Ours are "
            "of a simulator, and say nothing about engines: give traces of a rack with --rack"
        ]

    def draw(self, result: list[Score]) -> Drawing:
        """Medians of q-errors by case, a panel for each metric."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(10, 9))
        cases = list(dict.fromkeys((one.case, one.origin) for one in result if one.traces))
        panels = figure.subplots(3, 1, sharex=True)
        marks = {MODEL: ("o", "#0072B2"), "pooled": ("s", "#009E73"), "flat": ("^", "#999999"),
                 PAPER_MODEL: ("D", "#D55E00"), PAPER_FLAT: ("v", "#E0B0A0")}  # fmt: skip
        for panel, metric in zip(panels, [m for m in METRICS if m not in CLASSES], strict=True):
            field = f"{metric.removesuffix('_ms')}_q50"
            for predictor, (mark, colour) in marks.items():
                points = [
                    (x, getattr(one, field))
                    for x, (case, origin) in enumerate(cases)
                    for one in result
                    if one.predictor == predictor
                    and one.case == case
                    and one.origin in (origin, "paper")
                ]
                if points:
                    panel.scatter(
                        *zip(*points, strict=True), marker=mark, c=colour, label=predictor
                    )
            panel.set_yscale("log")
            panel.set_ylabel(f"{field.removesuffix('_q50').replace('_', ' ')}: median q-error")
        panels[0].legend(frameon=False, ncols=3, fontsize=8)
        labels = [f"{case} ({origin})" for case, origin in cases]
        panels[-1].set_xticks(range(len(cases)), labels, rotation=35, ha="right")
        return figure


def _scores(parameters: CostreamParameters, run: Run) -> list[Score]:
    cases = _cases(parameters, run)
    rows = []
    predictors: dict[int, Predictors] = {}
    for number, case in enumerate(cases):
        run.advance(number, len(cases))
        # Some cases learn from the same traces.
        if id(case.learnt) not in predictors:
            predictors[id(case.learnt)] = _trained(case, parameters, run)
        rows += _scored(case, predictors[id(case.learnt)])
    run.advance(len(cases), len(cases))
    return rows


def _cases(parameters: CostreamParameters, run: Run) -> list[Case]:
    from nova_research.costream.training.dataset import read_dataset, rows_for

    def simulated(name: str, drawn: Ranges, traces: int, seed: int) -> Dataset:
        from nova_research.costream.corpus.simulated import simulate_corpus

        assert run.kept is not None
        directory = run.kept / f"{name.replace(' ', '-')}-{traces}-{seed}"
        simulate_corpus(directory, traces, seed, name, lambda finished, total: None, drawn)
        return read_dataset([directory])

    seed = parameters.seed
    base = simulated("paper", PAPER, parameters.traces, seed)

    def unseen(name: str, drawn: Ranges) -> Dataset:
        # Another seed, so other queries.
        return simulated(name, drawn, parameters.tests, seed + 1)

    def learnt(keep: Callable[[Graph], bool]) -> Dataset:
        return base.take(np.array([keep(graph) for graph in base.graphs], bool))

    test = rows_for(base, "test")
    cases = [Case("III", "simulator", "never seen", base, base.take(test))]
    rack = None
    if parameters.rack is not None:
        rack = read_dataset([Path(parameters.rack)])
        if not (rack.origin == "rack").any():
            raise NovaError(f"--rack {parameters.rack}: has no traces of a rack")
        tests = rack.take(rows_for(rack, "test"))
        cases.append(Case("III", "rack", "never seen", _joined(base, rack), tests))
    cases.append(Case("IV", "simulator", "between", base, unseen("between", BETWEEN)))
    cases += [
        Case("V", "simulator", one.name, learnt(one.trained), unseen(one.name, one.drawn))
        for one in BEYOND
    ]
    cases += _chains(base, base, "simulator")
    if rack is not None:
        cases += _chains(_joined(base, rack), rack, "rack")
    cases += [
        Case("VI", "simulator", name, base, unseen(name, replace(PAPER, benchmark=name)))
        for name in BENCHMARKS
    ]
    return [case for case in cases if len(case.tests)]


def _chains(traces: Dataset, tests: Dataset, origin: str) -> list[Case]:
    """Chains of filters, by models of problems that have none."""

    def lengths(dataset: Dataset) -> np.ndarray:
        return np.array([chain(part) for part in dataset.parts()])

    single = traces.take(~np.isin(traces.queries, traces.queries[lengths(traces) > 1]))
    length, linear = lengths(tests), tests.structure == "linear"
    return [
        Case("VI", origin, f"{n} filters", single, tests.take(linear & (length == n)))
        for n in range(2, LONGEST_CHAIN + 1)
    ]


def chain(graph: Graph) -> int:
    """Length of the longest chain of filters."""
    producer, consumer = graph.ends
    filters = graph.kind == FILTER
    length = filters.astype(int)
    for _ in range(len(graph)):
        both = filters[producer] & filters[consumer]
        longer = length.copy()
        np.maximum.at(longer, consumer[both], length[producer[both]] + 1)
        if (longer == length).all():
            break
        length = longer
    return int(length.max(initial=0))


def _joined(one: Dataset, other: Dataset) -> Dataset:
    from nova_research.costream.training.dataset import Dataset

    columns = {
        name: np.concatenate([getattr(one, name), getattr(other, name)])
        for name in ("ids", "queries", "structure", "origin", "repeat_of", "window", "sinks")
    }
    labels = {name: np.concatenate([one.labels[name], other.labels[name]]) for name in METRICS}
    return Dataset(**columns, graphs=[*one.graphs, *other.graphs], labels=labels)


def _trained(case: Case, parameters: CostreamParameters, run: Run) -> Predictors:
    from nova_research.costream.training.baselines import VECTORS, Trees
    from nova_research.costream.training.dataset import rows_for
    from nova_research.costream.training.evaluate import predicted
    from nova_research.costream.training.train import Settings, train

    assert run.kept is not None
    settings = Settings(members=parameters.members, epochs=parameters.epochs, seed=parameters.seed)
    # Other traces or settings get another directory, so that no earlier training is resumed.
    learnt = "\n".join([repr(settings), *case.learnt.ids.tolist()])
    work = run.kept / hashlib.blake2b(learnt.encode(), digest_size=8).hexdigest()
    model = train(case.learnt, settings, work=work)

    predictors: Predictors = {MODEL: partial(predicted, model)}
    same = case.learnt.take(case.learnt.origin == case.origin)
    taught, held = (same.take(rows_for(same, part)) for part in ("train", "validation"))
    for vector in VECTORS:
        predictors[vector] = Trees.trained(vector, taught, held).values
    return predictors


def _scored(case: Case, predictors: Predictors) -> list[Score]:
    from nova_research.costream.training.evaluate import scores

    rows = [
        _score(case, name, len(case.tests), _row(scores(values(case.tests), case.tests)))
        for name, values in predictors.items()
    ]
    published = PUBLISHED[case.name].items()
    return rows + [_score(replace(case, origin="paper"), name, None, v) for name, v in published]


def _row(by_metric: Mapping[str, Mapping[str, float]]) -> Values:
    row: list[float | None] = []
    for metric in METRICS:
        one = by_metric[metric]
        values = [100 * one["accuracy"]] if metric in CLASSES else [one["q50"], one["q95"]]
        row += [None if value != value else value for value in values]
    return tuple(row)


def _score(case: Case, predictor: str, traces: int | None, row: Sequence[Any]) -> Score:
    return Score(case.table, case.name, case.origin, predictor, traces, *row)
