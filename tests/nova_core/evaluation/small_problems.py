"""Problems small enough to check by hand or by trying everything."""

from __future__ import annotations

import numpy as np

from nova_core.io.validation import validate_problem
from nova_core.model import JoinMatrix, Joins, Nodes, Problem, Sources


def problem_of(
    position: list[list[float]],
    capacity: list[float],
    rates: list[tuple[float, float]],
    hosts: list[int],
    output_rate: float = 1.0,
) -> Problem:
    """Node 0 is the sink; pair k joins the sources of nodes 2 k + 1 and 2 k + 2."""
    pairs = len(rates)
    worker = np.zeros(len(position), bool)
    worker[hosts] = True
    # A sink must have room for the results.
    capacity = [max(capacity[0], pairs * output_rate), *capacity[1:]]
    return validate_problem(
        Problem(
            nodes=Nodes(
                ids=np.array([f"n{i}" for i in range(len(position))]),
                position=np.array(position, float),
                capacity=np.array(capacity, float),
                worker=worker,
            ),
            sources=Sources(
                ids=np.array([f"s{i}" for i in range(2 * pairs)]),
                node=np.arange(1, 2 * pairs + 1),
                stream=np.array(["left", "right"] * pairs),
                rate=np.array(rates, float).ravel(),
            ),
            joins=Joins(np.array(["j"]), np.array(["left"]), np.array(["right"]), np.array([0])),
            matrix=JoinMatrix(
                np.zeros(pairs, np.int64),
                np.arange(0, 2 * pairs, 2),
                np.arange(1, 2 * pairs, 2),
                np.full(pairs, float(output_rate)),
            ),
        )
    )


def random_problem(seed: int, pairs: int, hosts: int, full: float) -> Problem:
    """Hosts on top of the sink and the sources, together ``full`` of their capacity needed."""
    random = np.random.default_rng(seed)
    first = 2 * pairs + 1
    rates = random.integers(1, 60, (pairs, 2))
    share = random.uniform(0.5, 1.5, hosts)
    capacity = np.zeros(first + hosts)
    capacity[first:] = np.ceil(share / share.sum() * rates.sum() / full)
    return problem_of(
        random.uniform(0, 100, (first + hosts, 2)).tolist(),
        capacity.tolist(),
        [(float(a), float(b)) for a, b in rates],
        list(range(first, first + hosts)),
    )
