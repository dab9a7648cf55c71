"""Fitting the simulator: traces that it made itself give back what they were made with."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from simulated_placements import FILTER, aggregate, join, plan_on, problem_on

from nova_core.errors import NovaError
from nova_research.costream.corpus.simulated import simulate_corpus
from nova_research.costream.simulator.fit import (
    CLASSES,
    REGRESSIONS,
    Fit,
    Sample,
    fit,
    loss,
    read_samples,
    scores,
    simulated,
    split,
    write_fit,
)
from nova_research.costream.simulator.kernels.simulation import Constants
from nova_research.costream.simulator.simulate import fitted_constants, read_constants
from nova_research.costream.simulator.stages import stages_of
from nova_research.costream.training.commands import learn
from nova_research.costream.training.dataset import part_of
from nova_research.costream.training.traces import read_traces, write_traces

TRUE = Constants()._replace(wake_us=400.0, gather_us=20.0, sink_us=60.0, wait_ms=20.0)


def samples_of(count: int, constants: Constants = TRUE) -> list[Sample]:
    """Traces of random plans, two per query, as the simulator measures them."""
    rng = np.random.default_rng(1)
    made = []
    for number in range(count):
        operators = [[FILTER], [FILTER, join(0.5)], [FILTER, join(0.5), aggregate(1.0)]][number % 3]
        rates = rng.integers(50, 2000, 1 + (number % 3 > 0)).tolist()
        cpu = float(rng.choice([0.05, 0.1, 0.3]))
        problem = problem_on(operators, rates, cpu=cpu, ms=float(rng.integers(1, 50)))
        plan = plan_on(problem, rng.integers(0, 4, len(operators) - 1).tolist())
        stages = stages_of(plan)
        sample = Sample(f"q{number // 2}", stages, stages.upstream("q"), 6.0, {})
        (labels,) = simulated([sample], constants)
        measured = {name: getattr(labels, name) for name in (*CLASSES, *REGRESSIONS)}
        made.append(replace(sample, measured=measured))
    return made


def test_its_own_traces_fit_exactly() -> None:
    samples = samples_of(12)
    assert loss(samples, TRUE) == 0
    assert loss(samples, Constants()) > 0.1
    found = scores(samples, TRUE)
    assert all(found[name]["q95"] == 1 for name in REGRESSIONS)
    assert all(found[name]["accuracy"] == 1 for name in CLASSES)
    assert found["success"]["count"] == 12


@pytest.mark.no_cover
def test_fitting_finds_constants_that_do_better_on_queries_not_seen() -> None:
    samples = samples_of(16)
    steps: list[tuple[int, int]] = []
    found = fit(samples, evaluations=100, seed=3, progress=lambda a, b: steps.append((a, b)))
    guessed, fitted = found.scores["guessed"], found.scores["fitted"]
    assert fitted["e2e_latency_ms"]["q50"] < guessed["e2e_latency_ms"]["q50"]
    assert found.fitted_to + found.held_out == 16
    assert found.evaluations == len(steps)
    assert steps[-1][0] <= steps[-1][1]
    again = fit(samples, evaluations=2, seed=3)
    assert again == fit(samples, evaluations=2, seed=3)


def test_queries_are_split_whole() -> None:
    samples = samples_of(20)
    fitted, others = split(samples, 9, seed=0)
    assert len(fitted) == 8
    assert len(others) == 12
    assert all(part_of(one.query, 0) == "train" for one in fitted)
    assert {one.query for one in fitted}.isdisjoint(one.query for one in others)
    assert len(split(samples, 300, seed=0)[0]) == 16
    assert [one.query for one in split(samples, 9, seed=1)[0]] != [one.query for one in fitted]


def test_too_few_traces_are_refused() -> None:
    with pytest.raises(
        NovaError, match=r"fit: \d traces to fit to and \d to hold out; more queries"
    ):
        fit(samples_of(2))


def test_what_was_fitted_is_read_again(tmp_path: Path) -> None:
    found = Fit(TRUE, 0.1, 5, 3, 2, {"fitted": {"throughput": {"q50": math.nan}}})
    file = tmp_path / "simulator.json"
    write_fit(found, file, engine="flink")
    assert read_constants(file) == TRUE
    assert '"engine": "flink"' in file.read_text()


def test_traces_of_files_are_what_was_run(tmp_path: Path) -> None:
    """Documents hold all that the simulator needs: what it made is simulated alike again."""
    simulate_corpus(tmp_path / "made", 12, 0, "rack", lambda done, total: None)
    table = read_traces([tmp_path / "made"])
    with pytest.raises(NovaError, match="no traces of origin rack"):
        read_samples([tmp_path / "made"])
    samples = read_samples([tmp_path / "made"], origin="simulator")
    assert loss(samples, fitted_constants()) == 0
    assert [one.query for one in samples] == table.column("query").to_pylist()
    origin = pa.array(["rack"] * len(table))
    column = table.schema.get_field_index("origin")
    write_traces(tmp_path / "rack.parquet", table.set_column(column, "origin", origin))
    file = tmp_path / "constants.json"
    words = ["fit", str(tmp_path / "rack.parquet"), "-o", str(file)]
    done = CliRunner().invoke(learn, [*words, "--evaluations", "1"])
    assert done.exit_code == 0, done.output
    used, others = map(int, re.findall(r"fitted to (\d+) traces; (\d+) others", done.output)[0])
    assert used + others == len(table) and others > 0
    score, accuracy = r"\s+[\d.]+/[\d.]+", r"\s+[\d.]+ %"
    for constants in ("guessed", "fitted"):
        assert re.search(f"{constants}{score * 3}{accuracy * 2}", done.output), done.output
    assert isinstance(read_constants(file), Constants)
