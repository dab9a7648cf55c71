from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import ProblemError
from nova_core.io.validation import validate_problem
from nova_core.model.problem import Floats, Problem
from nova_workloads.topology import HETEROGENEITY_LEVELS, generate

# Median and coefficient of variation of the published capacities (data/instances/sim1000).
PUBLISHED = [(37, 0.952), (35, 0.930), (34, 1.030), (33, 1.163), (31, 1.309), (28, 1.457)]


def hosts(problem: Problem) -> Floats:
    return problem.nodes.capacity[problem.nodes.worker]


@settings(max_examples=50, deadline=None)
@given(
    nodes=st.integers(4, 300),
    heterogeneity=st.floats(0, 1),
    seed=st.integers(0, 2**32),
    dimensions=st.integers(2, 4),
    clusters=st.integers(1, 20),
    rates=st.tuples(st.integers(1, 50), st.integers(0, 200)),
)
def test_every_problem_is_valid_and_as_the_paper_describes(
    nodes: int,
    heterogeneity: float,
    seed: int,
    dimensions: int,
    clusters: int,
    rates: tuple[int, int],
) -> None:
    low, high = rates[0], sum(rates)
    problem = generate(
        nodes,
        heterogeneity=heterogeneity,
        seed=seed,
        dimensions=dimensions,
        clusters=clusters,
        rate_min=low,
        rate_max=high,
    )
    validate_problem(problem)
    assert problem.nodes.position.shape == (nodes, dimensions)
    x, y = problem.nodes.position[:, 0], problem.nodes.position[:, 1:]
    assert x.min() >= 0 and x.max() <= 100 and y.min() >= -50 and y.max() <= 50
    assert hosts(problem).min() >= 1 and hosts(problem).max() <= 1000
    assert np.isin(problem.sources.rate, np.arange(low, high + 1)).all()

    # Each source is a node of its own, in one join, and none of them is the sink.
    sources, sink = problem.sources.node, problem.joins.sink[0]
    assert len(np.unique(sources)) == len(sources)
    assert sink not in sources
    assert np.flatnonzero(~problem.nodes.worker).tolist() == [sink]
    partners = np.concatenate((problem.matrix.left, problem.matrix.right))
    assert sorted(partners) == list(range(len(sources)))
    assert (problem.sources.stream[problem.matrix.left] == "left").all()
    assert (problem.sources.stream[problem.matrix.right] == "right").all()
    assert abs(len(sources) - 0.6 * (nodes - 1)) <= 1.2
    assert problem.nodes.capacity[sink] >= 1.2 * problem.matrix.output_rate.sum()


@pytest.mark.parametrize("level", range(6))
def test_capacities_match_the_published_distributions(level: int) -> None:
    problem = generate(100_001, heterogeneity=HETEROGENEITY_LEVELS[level], seed=4)
    capacity = hosts(problem)
    median, variation = PUBLISHED[level]
    assert np.median(capacity) == pytest.approx(median, abs=2)
    assert capacity.std() / capacity.mean() == pytest.approx(variation, rel=0.06)
    assert capacity.mean() == pytest.approx(57.1, rel=0.04)
    assert problem.required_capacity.sum() / capacity.sum() == pytest.approx(0.4, abs=0.02)
    assert problem.matrix.output_rate.mean() == pytest.approx(10, rel=0.03)


@pytest.mark.data
def test_marginals_match_the_shared_instance(shared_data: Path) -> None:
    """Quantiles of capacities, rates and outputs against the published file itself."""
    directory = shared_data / "instances" / "sim1000"
    rows = [line.split(",") for line in (directory / "nodes.csv").read_text().splitlines()]
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9]
    for level in range(6):
        problem = generate(100_001, heterogeneity=HETEROGENEITY_LEVELS[level], seed=4)
        for role in ("source", "worker"):
            theirs = [float(row[f"capacity_{level}"]) for row in table if row["role"] == role]
            chosen = np.zeros(len(problem.nodes), bool)
            chosen[problem.sources.node] = True
            ours = problem.nodes.capacity[chosen if role == "source" else ~chosen]
            scale = float(np.mean(theirs))
            np.testing.assert_allclose(
                np.quantile(ours, quantiles) / scale,
                np.quantile(theirs, quantiles) / scale,
                atol=0.2,
                err_msg=f"capacity_{level} of {role}s",
            )


def test_one_seed_gives_one_problem() -> None:
    assert generate(500, seed=7, heterogeneity=0.5).same_as(
        generate(500, seed=7, heterogeneity=0.5)
    )
    assert not generate(500, seed=7).same_as(generate(500, seed=8))


def test_a_problem_stays_the_same_between_versions_and_platforms() -> None:
    problem = generate(5000, seed=3, heterogeneity=0.862)
    assert problem.nodes.position[1234].tolist() == [23.4488, 0.1556]
    assert problem.nodes.capacity[:5].tolist() == [18.0, 130.0, 108.0, 13.0, 3.0]
    assert problem.sources.rate[:5].tolist() == [34.0, 68.0, 28.0, 66.0, 13.0]


def test_heterogeneity_leaves_everything_else_alone() -> None:
    one, other = generate(1000, seed=5), generate(1000, seed=5, heterogeneity=1)
    assert (one.nodes.position == other.nodes.position).all()
    assert (one.sources.rate == other.sources.rate).all()
    assert (one.matrix.output_rate == other.matrix.output_rate).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 3}, "generate: nodes 3; expected a whole number >= 4"),
        ({"heterogeneity": 1.5}, "generate: heterogeneity 1.5; expected 0 to 1"),
        ({"heterogeneity": float("nan")}, "generate: heterogeneity nan; expected 0 to 1"),
        ({"seed": -1}, "generate: seed -1; expected a whole number >= 0"),
        ({"dimensions": 1}, "generate: dimensions 1; expected a whole number >= 2"),
        ({"clusters": 0}, "generate: clusters 0; expected a whole number >= 1"),
        ({"rate_min": 0.5}, "generate: rate_min 0.5; expected a whole number >= 1"),
        ({"rate_min": 80}, "generate: rate_max 75; expected a whole number >= 80"),
        ({"rate_max": float("inf")}, "generate: rate_max inf; expected a whole number >= 1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ProblemError) as error:
        generate(**({"nodes": 10} | arguments))  # type: ignore[arg-type]
    assert str(error.value) == message
