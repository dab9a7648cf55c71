"""Programs out of blocks: what is solved is what the blocks say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

from nova_core.errors import ProblemError
from nova_core.evaluation.mip import Program

COST = np.array([4.0, 3.0, 2.5])
NEED = np.array([3.0, 2.0, 2.0])


def knapsack(whole: bool = True) -> Program:
    """The least cost of items that together are 4 or more."""
    program = Program(60.0, 0.0)
    items = program.variables(COST, whole=whole)
    program.limit({items: csr_array(NEED[None, :])}, least=4.0)
    return program


def test_the_least_cost_of_all_choices() -> None:
    program = knapsack()
    x = program.solve()
    choices = [np.array(c) for c in itertools.product((0, 1), repeat=3)]
    best = min(float(COST @ c) for c in choices if NEED @ c >= 4)
    assert x is not None
    assert COST @ x == pytest.approx(best)
    assert program.bound == pytest.approx(best)
    assert not program.infeasible


def test_fractions_are_cheaper() -> None:
    x = knapsack(whole=False).solve()
    assert x is not None
    assert COST @ x == pytest.approx(2.5 + 4.0 * 2 / 3)


def test_blocks_are_columns_side_by_side() -> None:
    program = knapsack()
    added = program.variables(np.array([0.5]), most=9.0, whole=False)
    program.limit({0: eye_array(3), added: csr_array(-np.ones((3, 1)) / 9)}, most=0.0)
    x = program.solve()
    assert x is not None
    # Nothing can be taken without all of the added one.
    assert x.tolist() == pytest.approx([0, 1, 1, 9])


def test_a_run_may_have_costs_and_limits_of_its_own() -> None:
    program = knapsack()
    x = program.solve(np.array([1.0, 3.0, 3.0]), [(np.array([1.0, 0.0, 0.0]), 0.0)])
    assert x is not None
    assert x.tolist() == pytest.approx([0, 1, 1])
    x = program.solve(np.array([1.0, 3.0, 3.0]))
    assert x is not None
    assert x[0] == pytest.approx(1)


def test_what_has_no_solution() -> None:
    program = knapsack()
    program.limit({0: csr_array(np.ones((1, 3)))}, most=1.0)
    assert program.solve() is None
    assert program.infeasible
    assert program.bound == np.inf


def test_without_variables() -> None:
    for least, infeasible in ((0.0, False), (1.0, True)):
        program = Program(1.0, 0.0)
        program.limit({program.variables(np.empty(0)): csr_array((1, 0))}, least=least)
        assert (program.solve() is None) == program.infeasible == infeasible


@pytest.mark.parametrize(("limit", "gap", "message"), [(0, 0, "time_limit: 0"), (1, 1, "gap: 1")])
def test_limits_a_solver_cannot_use(limit: float, gap: float, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Program(limit, gap)
