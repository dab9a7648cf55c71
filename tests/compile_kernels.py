"""Compiles the kernels that tests use, and the tests, once for all processes of tests side by side.

`./nova test` runs this while the linters leave a core idle. Nothing depends on it but time.
"""

from __future__ import annotations

import numpy as np
import pytest

from nova_core.costspace import CostSpace, LiveCostSpace, embed, sample_pairs
from nova_core.model.examples import load_example
from nova_core.strategies import place
from nova_harness import check_live, measure_queries
from nova_workloads.topology import generate


def main() -> None:
    """Run what compiles them, the slowest first."""
    problem = generate(400, heterogeneity=0.5, seed=0)
    place(problem, "nova")
    place(problem, "nova", refine=False)
    check_live.main(["--nodes", "400", "--events", "300", "--every", "150"], standalone_mode=False)
    for search in ("annealing", "reactive-tabu"):
        place(load_example("running-example"), f"whitewater-{search}")
    measure_queries.measure(100, "latency", seed=0, repeat=1)
    position = np.random.default_rng(0).uniform(size=(300, 2)) * 50
    space = CostSpace(position, np.ones(300))
    for height in (False, True):
        embed(sample_pairs(space.matrix(), 20), 300, height=height)
    LiveCostSpace(space).add(np.arange(20), np.full(20, 9.0))
    # pytest compiles tests, and its plugins, in a way of its own.
    pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"])


if __name__ == "__main__":
    main()
