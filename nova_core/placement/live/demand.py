"""What a live placement has to run: pairs of a join matrix, or operators of whole queries.

Both know which operators there are, what these are linked with, and what events of sources, sinks
and queries do to them. Hosts, room and moves are the state's, for both alike.
"""

from __future__ import annotations

from nova_core.model.problem import Problem
from nova_core.placement.live.pairs import PairDemand
from nova_core.placement.live.queries import QueryDemand
from nova_core.placement.live.state import LiveState

Demand = PairDemand | QueryDemand


def demand_of(state: LiveState, problem: Problem) -> Demand:
    """A problem's demand.

    Args:
        state: has the problem's operators, not placed yet.
        problem: with pairs or queries.
    """
    return QueryDemand(state, problem) if problem.queries else PairDemand(state, problem)
