"""Fits the simulator's constants to traces of runs on hosts, and says how well they do on others.

Constants are looked for by simplexes (Nelder and Mead 1965, parameters of Gao and Han 2012) over
their logarithms, from the guesses on; a second search begins where the first one ends. What is
minimized is the mean over traces of the logarithms of q-errors of throughput and both latencies,
where a class that is not met counts like a q-error of 10.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from nova_core.errors import NovaError
from nova_core.learned.network import CLASSES, METRICS, REGRESSIONS
from nova_learn.dataset import part_of
from nova_learn.evaluate import q_errors
from nova_learn.kernels import simulation
from nova_learn.kernels.simulation import Constants
from nova_learn.simulate import labels_of
from nova_learn.simulated_stages import Stages, stages_of
from nova_learn.traces import WARM_UP_S, Labels

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.model.problem import Floats, Problem

COLUMNS = ("id", "query", "problem", "plan", "duration_s", *METRICS)

RANGE = 30.0
"""Constants are looked for from a default / this to a default * this."""

PULL = 0.002
"""What the mean square of constants' logarithms counts, so that those that no trace tells anything
about stay as they were guessed."""

STEPS = (0.7, 0.3)
"""How far apart the corners of the first and the second search's simplex are, as logarithms."""

MISSED, MOST = math.log(10.0), math.log(100.0)
"""What a class that is not met, and a metric at most, add to what is minimized."""


@dataclass(frozen=True)
class Sample:
    """A trace to fit to.

    Attributes:
        query: by which traces are split.
        stages: of its plan.
        seconds: measured time.
        measured: labels by name; None where there is none.
    """

    query: str
    stages: Stages
    seconds: float
    measured: dict[str, Any]


@dataclass(frozen=True)
class Fit:
    """Constants, and how well they do.

    Attributes:
        constants: found.
        loss: what was minimized, per trace fitted to.
        evaluations: sets of constants that were tried.
        fitted_to: traces.
        scores: of traces that were held out, see `scores`; before (``guessed``) and after.
        held_out: how many these are.
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
        origin: of the traces that are taken.

    Raises:
        NovaError: for a file that holds no traces, naming it, or where none is of that origin.
    """
    from nova_learn.trace_documents import plan_of_trace, problem_of_trace
    from nova_learn.traces import read_traces

    columns = read_traces(paths, (*COLUMNS, "origin")).to_pydict()
    problems: dict[str, Problem] = {}
    samples = []
    for row, trace in enumerate(columns["id"]):
        if columns["origin"][row] != origin:
            continue
        text = columns["problem"][row]
        if text not in problems:
            # Traces of one problem follow each other.
            problems = {text: problem_of_trace(text, trace)}
        plan = plan_of_trace(columns["plan"][row], problems[text], trace)
        measured = {name: columns[name][row] for name in METRICS}
        seconds = float(columns["duration_s"][row])
        samples.append(Sample(columns["query"][row], stages_of(plan), seconds, measured))
    if not samples:
        raise NovaError(f"{paths[0] if paths else 'traces'}: no traces of origin {origin}")
    return samples


def simulated(sample: Sample, constants: Constants) -> Labels:
    """What the simulator says of a trace."""
    outcome = simulation.simulate(sample.stages.network, constants, WARM_UP_S, sample.seconds)
    return labels_of(outcome, sample.seconds)


def loss(samples: Sequence[Sample], constants: Constants) -> float:
    """What is minimized: see the module."""
    total = 0.0
    for sample in samples:
        found = simulated(sample, constants)
        for name in CLASSES:
            total += MISSED * (getattr(found, name) != sample.measured[name])
        for name in REGRESSIONS:
            error = _q_error(name, getattr(found, name), sample.measured[name])
            if error is not None:
                total += min(math.log(error), MOST)
    return total / len(samples)


def _q_error(metric: str, one: float | None, other: float | None) -> float | None:
    """Of one pair; None where one of them is missing, or nothing."""
    return float(q_errors(metric, np.array(one), np.array(other))) if one and other else None


def scores(samples: Sequence[Sample], constants: Constants) -> dict[str, dict[str, float]]:
    """Per metric ``q50`` and ``q95`` of its q-error, per class its ``accuracy``; ``count`` of each.

    Q-errors are of traces with results by measurement and simulator; accuracies are of all.
    """
    labels = [simulated(sample, constants) for sample in samples]
    found: dict[str, dict[str, float]] = {}
    for name in REGRESSIONS:
        errors = [
            error
            for label, sample in zip(labels, samples, strict=True)
            if (error := _q_error(name, getattr(label, name), sample.measured[name])) is not None
        ]
        middle, high = np.quantile(errors, (0.5, 0.95)) if errors else (math.nan, math.nan)
        found[name] = {"q50": float(middle), "q95": float(high), "count": len(errors)}
    for name in CLASSES:
        right = [
            getattr(label, name) == sample.measured[name]
            for label, sample in zip(labels, samples, strict=True)
        ]
        found[name] = {
            "accuracy": float(np.mean(right)) if right else math.nan,
            "count": len(right),
        }
    return found


def split(samples: Sequence[Sample], most: int, seed: int) -> tuple[list[Sample], list[Sample]]:
    """What to fit to, and what to hold out.

    What is fitted to are whole queries that models are trained with under this seed (`part_of`): a
    simulator that knew the others would tell of them.

    Args:
        samples: all.
        most: to fit to.
        seed: of the split; it orders queries, too.
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Fit:
    """Fit the constants to some traces, and score them on the others.

    The same traces, numbers and seed give the same constants.

    Args:
        samples: of queries to fit to, and of others.
        most: traces to fit to.
        evaluations: sets of constants that are tried, about.
        seed: of the split.
        progress: is given sets of constants that were tried, and how many there are.

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
        found = minimize(
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
        point = np.asarray(found.x, np.float64)
    constants = _constants(point)
    return Fit(
        constants,
        loss(fitted, constants),
        tried,
        len(fitted),
        len(others),
        {"guessed": scores(others, begin), "fitted": scores(others, constants)},
    )


def summary_table(found: Fit) -> Table:
    """The scores for people."""
    from nova_core import console

    table = console.table(
        f"Simulator: fitted to {found.fitted_to:,} traces; {found.held_out:,} others, q-error "
        "Q50/Q95 or accuracy",
        ["constants", *(f">{name}" for name in (*REGRESSIONS, *CLASSES))],
    )
    for name, of in found.scores.items():
        cells = [f"{of[metric]['q50']:.2f}/{of[metric]['q95']:.2f}" for metric in REGRESSIONS]
        cells += [f"{100 * of[metric]['accuracy']:.1f} %" for metric in CLASSES]
        table.add_row(name, *cells)
    return table


def _constants(point: Floats) -> Constants:
    """Constants whose logarithms are so far from the defaults'; three digits say it all."""
    most = math.log(RANGE)
    pairs = zip(Constants(), np.exp(np.clip(point, -most, most)).tolist(), strict=True)
    return Constants(*(float(f"{guess * factor:.3g}") for guess, factor in pairs))


def write_fit(found: Fit, path: Path, **facts: Any) -> None:
    """Write constants as `nova_learn.simulate.read_constants` reads them, with where they are from.

    Args:
        found: what was fitted.
        path: of the file.
        facts: more of it, such as the engine that the traces are of.

    Raises:
        NovaError: when it cannot be written.
    """
    from nova_core.model.files import write_text

    provenance = {
        "fitted": True,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "fitted_to": found.fitted_to,
        "held_out": found.held_out,
        "loss": found.loss,
        "evaluations": found.evaluations,
        "scores_of_held_out": found.scores,
        **facts,
    }
    content = {"constants": found.constants._asdict(), "provenance": provenance}
    # What is no number, such as an error of no traces, becomes null.
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    write_text(path, text.decode() + "\n")
