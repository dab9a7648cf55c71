"""Nova: virtual placement at the geometric median, then capacity-aware assignment in pieces."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from nova_core.errors import InfeasibleError
from nova_core.model.expansion import graph_of
from nova_core.model.objectives import leg_weights
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Problem
from nova_core.strategies.base import Strategy, parameter_dict
from nova_core.strategies.nova_parameters import NovaParameters

if TYPE_CHECKING:
    from nova_core.placement.assignment import Assigner

# What a plan may break after pieces that fit nowhere are spread.
SPREAD_BREAKS = ("capacity", "minimum-capacity", "replica-bandwidth", "link")


class Nova(Strategy):
    """The Nova approach (paper, Algorithm 1)."""

    name = "nova"
    Parameters = NovaParameters
    parameters: NovaParameters

    def place(self, problem: Problem) -> Plan:
        """Place every pair of the join matrix, or every operator of queries (paper, section 3.6).

        Raises:
            ProblemError: for queries that do not fit the problem.
            InfeasibleError: when ``on_full`` is ``expand`` and something fits nowhere.
        """
        if problem.queries:
            from nova_core.placement.queries.placing import place_queries

            return place_queries(problem, self.parameters)
        return self._place_pairs(problem)

    def _place_pairs(self, problem: Problem) -> Plan:
        import numpy as np

        from nova_core.placement.assignment import Assigner
        from nova_core.placement.geometric_median import geometric_median, pair_anchors
        from nova_core.placement.kernels import tuning
        from nova_core.placement.partitioning import maximum_partition_rate

        p = self.parameters
        if p.refine is None and len(problem.matrix) > tuning.REFINED_JOINS:
            with suppress(InfeasibleError):  # refinement may find room
                plan = Nova(replace(p, refine=False))._place_pairs(problem)
                if not plan.breaks:
                    return plan
        weights = leg_weights(problem, p.objective)
        anchors = pair_anchors(problem)
        points = geometric_median(anchors, weights)
        rates = problem.left_rate, problem.right_rate
        maximum = maximum_partition_rate(*rates, p.sigma, p.bandwidth)
        starts = 1
        if p.refine is not False and p.index == "capacity-tree":
            # A small problem affords many orders, and a single one may dead-end.
            afforded = tuning.JOINS_AFFORDED // len(problem.matrix)
            starts = max(1, min(tuning.MOST_STARTS, afforded))

        def best_of(maximum: Floats) -> Assigner:
            states = (
                self.assign(problem, anchors, points, weights, maximum, start)
                for start in range(starts)
            )
            return min(states, key=Assigner.score)

        best = best_of(maximum)
        finest = {}
        for sigma in p.finer_sigmas:
            if not best.unplaced.any() or best.hopeless:
                break
            finer = maximum_partition_rate(*rates, sigma)
            maximum = np.where(best.waiting(), finer, maximum)
            state = best_of(maximum)
            if state.score() < best.score():
                best, finest = state, {"finest_sigma": sigma}
        waiting = int(best.unplaced.sum())
        if waiting and p.on_full == "expand":
            missing = best.missing()
            raise InfeasibleError(_no_room(problem, best, p.bandwidth), missing)
        spread = best.spread(p.k) if waiting else 0
        result = best.finish()
        return Plan(
            problem=problem,
            strategy=self.name,
            objective=p.objective,
            partitions=result.partitions,
            instances=result.instances,
            parameters=parameter_dict(p),
            virtual_position=points,
            breaks=SPREAD_BREAKS if spread else (),
            notes={"cut_joins": result.cuts, "spread_pieces": spread, **finest},
        )

    def assign(
        self,
        problem: Problem,
        anchors: Floats,
        points: Floats,
        weights: Floats,
        maximum: Floats,
        start: int = 0,
        whole: bool = False,
    ) -> Assigner:
        """Phase III once: assign, refine, cut; joins without room stay unplaced.

        Args:
            problem: what is placed.
            anchors: (p, 3, d) coordinates of each pair's sources and sink, ms.
            points: (p, d) virtual positions, ms.
            weights: (p, 3) objective weights of each pair's legs.
            maximum: (p,) p_max of each pair, tuples/s (Eq. 7).
            start: number of the order in which joins choose; 0 is largest first.
            whole: whether a join that fits nowhere whole stays unplaced.
        """
        from nova_core.placement.assignment import Assigner
        from nova_core.placement.kernels import tuning

        p = self.parameters
        refined = p.refine is not False
        state = Assigner.start(
            problem,
            anchors,
            points,
            weights,
            maximum,
            by_rate=p.objective == "network-usage",
            c_min=p.c_min,
            bandwidth=math.inf if p.bandwidth is None else p.bandwidth,
            on_full=p.on_full,
            refine=refined,
        )
        few = len(problem.matrix) <= tuning.FEW_JOINS
        if p.index == "capacity-tree":
            more, fewer = (tuning.NEARBY_REFINED, tuning.NEARBY) if few else (tuning.NEARBY, 1)
            nearby = more if refined else fewer
            exact = 1.0 if refined or few else tuning.NEARLY
            state.assign_whole(nearby, [p.seed, start] if start else None, exact)
        else:
            from nova_core.placement.neighbours import assign_nearest

            assign_nearest(state, p.index, p.k, p.on_full, p.seed)
            state.update_tree()
        waiting = state.unplaced.any()
        if refined:
            width = tuning.CANDIDATES_FEW if few else tuning.CANDIDATES
            state.list_candidates(p.neighbours or width)
            state.improve(deep=bool(waiting))
        if waiting and not whole and (p.index == "capacity-tree" or p.on_full == "expand"):
            state.cut_to_fit()
        if refined:
            state.cut_where_cheaper(p.cut_gain)
            state.improve()
        width = 0
        for most in tuning.LAST_CANDIDATES if waiting and not whole else ():
            # Last resort: make room for unplaced joins by moving others.
            before, width = width, max(most // len(state.unplaced), tuning.CANDIDATES)
            if before >= len(problem.nodes) or state.hopeless or not state.unplaced.any():
                break
            state.list_candidates(width)
            state.improve(deep=True, only_unplaced=True)
        return state


def _no_room(problem: Problem, best: Assigner, bandwidth: float | None) -> str:
    pieces, missing, who = int(best.unplaced.sum()), best.missing(), ""
    if problem.requires:
        graph = graph_of(problem)
        who = graph.requirements.without_room(graph.requirement[graph.bodies[best.waiting()]])
    limit = "" if bandwidth is None else f" or exceed t_b = {bandwidth:g} tuples/s"
    return (
        f"{problem.name}: {pieces} pieces of joins find no room{limit} even when cut: "
        f"{missing:g} tuples/s are missing{who}; add capacity, lower sigma to cut finer, or accept "
        "overload with on_full=spread"
    )
