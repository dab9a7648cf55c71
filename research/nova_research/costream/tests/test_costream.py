"""Costream takes what its model says is best, leaves out what would fail, and says what it did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from learned_models import random_model
from learned_problems import two_streams

from nova_core.errors import ProblemError
from nova_core.model.verify import verify
from nova_core.strategies import place
from nova_research.costream.learned.graph import graph_of
from nova_research.costream.learned.model import Model, ModelError, Predictions, write_model
from nova_research.costream.learned.network import METRICS
from nova_research.costream.learned.search import Search, ranking
from nova_research.costream.strategy import _METRIC


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, str]:
    path = tmp_path_factory.mktemp("model") / "model.npz"
    made = random_model(hidden=16, seed=4)
    write_model(made, path, half=False)
    return made, str(path)


@pytest.mark.parametrize("target", sorted(_METRIC))
def test_it_takes_what_is_predicted_best(model: tuple[Model, str], target: str) -> None:
    problem = two_streams()
    plan = place(problem, "costream", model=model[1], target=target, candidates=50)
    assert verify(plan).ok
    chosen = model[0].predict([graph_of(plan)])
    search = Search(problem, model[0])
    query = search.queries()[0]
    found = search.candidates(query, 50, np.random.default_rng(0))
    all_of_them = search.predict(query, found)
    best = ranking(all_of_them, _METRIC[target])[0]
    assert plan.notes["candidates"] == len(found)
    for metric in METRICS:
        assert chosen.value(metric)[0] == pytest.approx(all_of_them.value(metric)[best], rel=1e-3)


def predictions(
    back: list[list[float]], success: list[list[float]], ms: list[float]
) -> Predictions:
    """Of three members that agree on latencies."""
    latency = np.tile(ms, (3, 1))
    return Predictions(
        {
            "throughput": latency,
            "e2e_latency_ms": latency,
            "processing_latency_ms": latency,
            "back_pressure": np.array(back),
            "success": np.array(success),
        }
    )


def test_the_majority_vetoes() -> None:
    found = predictions(
        back=[[0.9, 0.9, 0.1], [0.9, 0.2, 0.1], [0.1, 0.1, 0.9]],
        success=[[0.9, 0.9, 0.9]] * 3,
        ms=[1.0, 5.0, 3.0],
    )
    # The first falls behind by two of three, the others by one.
    assert ranking(found, "processing_latency_ms").tolist() == [2, 1, 0]
    assert ranking(found, "throughput").tolist() == [1, 2, 0]


def test_where_all_are_vetoed_the_likeliest_is_taken() -> None:
    found = predictions(
        back=[[0.9, 0.6, 0.8]] * 3, success=[[0.4, 0.4, 0.4]] * 3, ms=[1.0, 9.0, 2.0]
    )
    assert ranking(found, "e2e_latency_ms").tolist() == [1, 2, 0]


def test_queries_are_placed_one_after_the_other(model: tuple[Model, str]) -> None:
    one = two_streams()
    query = one.queries[0]
    more = tuple(msgspec.structs.replace(query, id=f"q{number}") for number in range(3))
    problem = replace(one, queries=more)
    plan = place(problem, "costream", model=model[1], candidates=30)
    assert verify(plan).ok
    assert plan.notes["candidates"] == 90
    assert place(problem, "costream", model=model[1], candidates=30).same_as(plan)


def test_parameters_are_checked(model: tuple[Model, str], tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="target is 'luck'; expected one of processing"):
        place(two_streams(), "costream", target="luck")
    with pytest.raises(ProblemError, match="candidates is 0"):
        place(two_streams(), "costream", candidates=0)
    with pytest.raises(ModelError, match=r"none\.npz: cannot be read"):
        place(two_streams(), "costream", model=str(tmp_path / "none.npz"))
    with pytest.raises(ProblemError, match="model is an empty path; name a file"):
        place(two_streams(), "costream", model="")
