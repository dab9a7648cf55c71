"""One forward function for numpy and jax; what queries share is computed once, to the same end."""

from __future__ import annotations

import os

import numpy as np
import pytest
from learned_models import random_model
from learned_problems import candidates, plan_at, two_streams
from needs import skip_or_fail

from nova_research.costream.learned.graph import GraphBuilder, stack
from nova_research.costream.learned.network import METRICS, forward, initial, shapes
from nova_research.costream.learned.search import Search


@pytest.mark.parametrize("layers", [1, 2])
def test_numpy_is_jax(layers: int) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import jax
        import jax.numpy as jnp
    except ModuleNotFoundError:
        skip_or_fail("jax is not installed (pip install 'nova-research[learn]')")
    problem = two_streams()
    found = candidates(problem, 9, 1)
    builder = GraphBuilder(problem)
    stacked = stack([builder.graph(plan_at(found, row)) for row in range(len(found))])
    parameters = initial(24, layers, 5)
    here = forward(np, parameters, stacked.layout, stacked.batch)
    compiled = jax.jit(lambda p, b: forward(jnp, p, stacked.layout, b))
    there = compiled(parameters, stacked.batch)
    for metric in METRICS:
        assert np.asarray(there[metric]) == pytest.approx(here[metric], rel=1e-4, abs=1e-4)


def test_parameters_are_of_their_shapes() -> None:
    parameters = initial(8, 2, 0)
    assert {name: one.shape for name, one in parameters.items()} == shapes(8, 2)
    assert all(one.dtype == np.float32 for one in parameters.values())
    again = initial(8, 2, 0)
    assert all((again[name] == one).all() for name, one in parameters.items())


def test_candidates_in_a_batch_are_plans_one_by_one() -> None:
    problem, model = two_streams(), random_model()
    search = Search(problem, model)
    query = search.queries()[0]
    found = search.candidates(query, 150, np.random.default_rng(0))
    together = search.predict(query, found)
    builder = GraphBuilder(problem)
    rows = range(0, len(found), 7)
    alone = model.predict([builder.graph(plan_at(found, row)) for row in rows])
    for metric in METRICS:
        assert together.members[metric][:, list(rows)] == pytest.approx(
            alone.members[metric], rel=1e-3, abs=1e-6
        )


def test_what_is_placed_counts_on_its_hosts() -> None:
    """A second query on the same hosts is predicted as part of a plan of both."""
    from dataclasses import replace

    from nova_research.costream.learned.candidates import plan_of_nodes

    one = two_streams()
    query = one.queries[0]
    import msgspec

    both = replace(one, queries=(query, msgspec.structs.replace(query, id="r")))
    model = random_model()
    search = Search(both, model)
    first, second = search.queries()
    found = search.candidates(first, 1, np.random.default_rng(0))
    search.keep(first, found.nodes(0))
    more = search.candidates(second, 5, np.random.default_rng(1))
    predicted = search.predict(second, more)
    for row in range(len(more)):
        nodes = search.nodes.copy()
        nodes[more.operators] = more.nodes(row)
        plan = plan_of_nodes(both, search.enumerator.graph, nodes, "costream")
        graph = GraphBuilder(both).graph(plan)
        together = model.predict([graph])
        for metric in METRICS:
            assert predicted.members[metric][:, row] == pytest.approx(
                together.members[metric][:, 1], rel=1e-3, abs=1e-5
            )
