"""Fits the simulator's constants to traces of runs on hosts, and scores them on other traces.

The search uses simplexes (Nelder and Mead 1965, parameters of Gao and Han 2012) over the logarithms
of constants and begins at the guesses; a second search begins where the first one ends. It
minimizes the mean over traces of the logarithms of q-errors of throughput and both latencies; a
wrong class counts like a q-error of 10.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from nova_core.errors import NovaError
from nova_research.costream.learned.network import CLASSES, METRICS, REGRESSIONS
from nova_research.costream.simulator.kernels import simulation
from nova_research.costream.simulator.kernels.simulation import Constants
from nova_research.costream.simulator.simulate import labels_of
from nova_research.costream.simulator.stages import Stages, stages_of
from nova_research.costream.training.dataset import part_of
from nova_research.costream.training.evaluate import q_errors, quantiles, score_text
from nova_research.costream.training.traces import WARM_UP_S, Labels, now

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.model.problem import Bools, Floats, Problem

COLUMNS = ("id", "query", "measured_query", "problem", "plan", "duration_s", *METRICS)

RANGE = 30.0
"""The search covers default / RANGE to default * RANGE of each constant."""

PULL = 0.002
"""Weight of the mean square of constants' logarithms, so that constants that no trace depends on
keep their guesses."""

STEPS = (0.7, 0.3)
"""Distance of the corners of the first and the second search's simplex, in logarithms."""

MISSED, MOST = math.log(10.0), math.log(100.0)
"""The loss of a wrong class, and the greatest loss of a metric."""


@dataclass(frozen=True)
class Sample:
    """A trace to fit to.

    Attributes:
        query: name, by which traces are split.
        stages: of its plan; traces of one run share them.
        of: (s,) which stages are of the measured query.
        seconds: measured time.
        measured: labels by name; None where missing.
    """

    query: str
    stages: Stages
    of: Bools
    seconds: float
    measured: dict[str, Any]


@dataclass(frozen=True)
class Fit:
    """Constants, and their scores.

    Attributes:
        constants: the fitted ones.
        loss: minimized loss per trace fitted to.
        evaluations: number of sets of constants tried.
        fitted_to: number of traces.
        held_out: number of traces held out.
        scores: of traces held out, see `scores`; before (``guessed``) and after (``fitted``).
    """

    constants: Constants
    loss: float
    evaluations: int
    fitted_to: int
    held_out: int
    scores: dict[str, dict[str, dict[str, float]]]


def read_samples(paths: Sequence[Path], origin: str = "rack") -> list[Sample]:
    """Traces of Parquet files, or directories of them.

    Args:
        paths: the files.
        origin: of the traces to take.

    Raises:
        NovaError: for a file without traces, naming it, or when no trace has that origin.
    """
    from nova_research.costream.training.trace_documents import (
        measured_query,
        plan_of_trace,
        problem_of_trace,
    )
    from nova_research.costream.training.traces import read_traces

    columns = read_traces(paths, (*COLUMNS, "origin")).to_pydict()
    problems: dict[str, Problem] = {}
    stages: dict[str, Stages] = {}
    samples = []
    for row, trace in enumerate(columns["id"]):
        if columns["origin"][row] != origin:
            continue
        text = columns["problem"][row]
        if text not in problems:
            # Traces of one problem follow each other, and so do those of a plan of it.
            problems, stages = {text: problem_of_trace(text, trace)}, {}
        document = columns["plan"][row]
        if document not in stages:
            stages = {document: stages_of(plan_of_trace(document, problems[text], trace))}
        ran = stages[document]
        of = ran.upstream(measured_query(columns["measured_query"][row], ran.sinks, trace))
        measured = {name: columns[name][row] for name in METRICS}
        seconds = float(columns["duration_s"][row])
        samples.append(Sample(columns["query"][row], ran, of, seconds, measured))
    if not samples:
        raise NovaError(f"{paths[0] if paths else 'traces'}: no traces of origin {origin}")
    return samples


def simulated(samples: Sequence[Sample], constants: Constants) -> Iterator[Labels]:
    """Labels of traces by the simulator; a plan of several queries runs once."""
    ran, seconds, outcome = None, 0.0, None
    for sample in samples:
        if outcome is None or ran is not sample.stages or seconds != sample.seconds:
            ran, seconds = sample.stages, sample.seconds
            outcome = simulation.simulate(ran.network, constants, WARM_UP_S, sample.seconds)
        yield labels_of(outcome, sample.seconds, sample.of)


def loss(samples: Sequence[Sample], constants: Constants) -> float:
    """The loss to minimize, see the module."""
    total = 0.0
    for sample, labels in zip(samples, simulated(samples, constants), strict=True):
        for name in CLASSES:
            total += MISSED * (getattr(labels, name) != sample.measured[name])
        for name in REGRESSIONS:
            error = _q_error(name, getattr(labels, name), sample.measured[name])
            if error is not None:
                total += min(math.log(error), MOST)
    return total / len(samples)


def _q_error(metric: str, one: float | None, other: float | None) -> float | None:
    """The q-error of a pair; None where a value is missing or 0."""
    return float(q_errors(metric, np.array(one), np.array(other))) if one and other else None


def scores(samples: Sequence[Sample], constants: Constants) -> dict[str, dict[str, float]]:
    """Per metric ``q50`` and ``q95`` of its q-error, per class its ``accuracy``; ``count`` of each.

    Q-errors are of traces with measured and simulated results; accuracies are of all traces.
    """
    labels = list(simulated(samples, constants))
    by_metric: dict[str, dict[str, float]] = {}
    for name in REGRESSIONS:
        errors = [
            error
            for label, sample in zip(labels, samples, strict=True)
            if (error := _q_error(name, getattr(label, name), sample.measured[name])) is not None
        ]
        middle, high = quantiles(np.array(errors))
        by_metric[name] = {"q50": middle, "q95": high, "count": len(errors)}
    for name in CLASSES:
        right = [
            getattr(label, name) == sample.measured[name]
            for label, sample in zip(labels, samples, strict=True)
        ]
        by_metric[name] = {
            "accuracy": float(np.mean(right)) if right else math.nan,
            "count": len(right),
        }
    return by_metric


def split(samples: Sequence[Sample], most: int, seed: int) -> tuple[list[Sample], list[Sample]]:
    """The traces to fit to, and those to hold out.

    The fit uses whole queries that models are trained with under this seed (`part_of`); otherwise
    the simulator would leak the queries held out.

    Args:
        samples: all.
        most: traces to fit to, at most.
        seed: of the split and of the order of queries.
    """
    queries = sorted(
        {one.query for one in samples if part_of(one.query, seed) == "train"},
        key=lambda name: hashlib.blake2b(f"fit/{seed}/{name}".encode(), digest_size=8).digest(),
    )
    room, chosen = most, set[str]()
    count = dict.fromkeys(queries, 0)
    for sample in samples:
        if sample.query in count:
            count[sample.query] += 1
    for name in queries:
        if count[name] <= room:
            chosen.add(name)
            room -= count[name]
    fitted = [sample for sample in samples if sample.query in chosen]
    return fitted, [sample for sample in samples if sample.query not in chosen]


def fit(
    samples: Sequence[Sample],
    *,
    most: int = 300,
    evaluations: int = 600,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda completed, total: None,
) -> Fit:
    """Fit the constants to some traces, and score them on the others.

    The same traces, numbers and seed give the same constants.

    Args:
        samples: of queries to fit to, and of others.
        most: traces to fit to, at most.
        evaluations: approximate number of sets of constants to try.
        seed: of the split.
        progress: called with the sets of constants tried and their total.

    Raises:
        NovaError: for too few traces.
    """
    from scipy.optimize import minimize

    begin = Constants()
    fitted, others = split(samples, most, seed)
    if not fitted or not others:
        raise NovaError(
            f"fit: {len(fitted)} traces to fit to and {len(others)} to hold out; more queries are "
            "needed"
        )
    tried = 0

    def of(point: Floats) -> float:
        nonlocal tried
        tried += 1
        progress(min(tried, evaluations), evaluations)
        return loss(fitted, _constants(point)) + PULL * float(np.square(point).mean())

    point, width = np.zeros(len(begin)), len(begin)
    for step in STEPS:
        corners = np.vstack([point, point + step * np.eye(width)])
        result = minimize(
            of,
            point,
            method="Nelder-Mead",
            options={
                "adaptive": True,
                "initial_simplex": corners,
                # It never tries fewer than its corners.
                "maxfev": max(evaluations // len(STEPS), 1),
            },
        )
        point = np.asarray(result.x, np.float64)
    constants = _constants(point)
    return Fit(
        constants,
        loss(fitted, constants),
        tried,
        len(fitted),
        len(others),
        {"guessed": scores(others, begin), "fitted": scores(others, constants)},
    )


def summary_table(result: Fit) -> Table:
    """The scores as a table."""
    from nova_core import console

    return console.table(
        f"Simulator: fitted to {result.fitted_to:,} traces; {result.held_out:,} others, q-error "
        "Q50/Q95 or accuracy",
        ["constants", *(f">{name}" for name in METRICS)],
        [
            (name, *(score_text(of[metric]) for metric in METRICS))
            for name, of in result.scores.items()
        ],
    )


def _constants(point: Floats) -> Constants:
    """Constants at these distances of logarithms from the defaults, rounded to three digits."""
    most = math.log(RANGE)
    pairs = zip(Constants(), np.exp(np.clip(point, -most, most)).tolist(), strict=True)
    return Constants(*(float(f"{guess * factor:.3g}") for guess, factor in pairs))


def write_fit(result: Fit, path: Path, **facts: Any) -> None:
    """Write constants for `simulate.read_constants`, with their provenance.

    Args:
        result: the fit.
        path: of the file.
        facts: further provenance, such as the engine of the traces.

    Raises:
        NovaError: when it cannot be written.
    """
    from nova_core.io.safe_files import write_text

    provenance = {
        "fitted": True,
        "made": now(),
        "fitted_to": result.fitted_to,
        "held_out": result.held_out,
        "loss": result.loss,
        "evaluations": result.evaluations,
        "scores_of_held_out": result.scores,
        **facts,
    }
    content = {"constants": result.constants._asdict(), "provenance": provenance}
    # NaN, such as an error of no traces, becomes null.
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    write_text(path, text.decode() + "\n")
