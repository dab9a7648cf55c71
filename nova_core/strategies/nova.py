"""Nova: virtual placement at the geometric median, then capacity-aware assignment in pieces."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from nova_core.errors import InfeasibleError
from nova_core.model.objectives import OBJECTIVES, leg_weights
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Problem
from nova_core.strategies.base import (
    POSITIVE,
    Strategy,
    check_choice,
    check_range,
    parameter_dict,
)

if TYPE_CHECKING:
    from nova_core.placement.assignment import Assigner

Index = Literal["capacity-tree", "kdtree", "annoy"]
OnFull = Literal["expand", "spread"]

# What a plan may break after pieces that fit nowhere are spread.
SPREAD_BREAKS = ("capacity", "minimum-capacity", "replica-bandwidth", "link")


@dataclass(frozen=True)
class NovaParameters:
    """Parameters of Nova; the defaults are the paper's where it has one.

    Attributes:
        objective: what is minimized: ``latency`` (Eq. 1), ``network-usage`` or ``source-latency``.
        sigma: how coarsely inputs may be cut, 0 (finest) to 1 (Eq. 7). None derives it per join
            from ``bandwidth`` (Eq. 8). Without one it is 0.4 as in the paper. With refinement,
            joins that find no room in such pieces are cut by 0.2, then 0.1.
        bandwidth: t_b, the most an instance may receive, tuples/s (Eq. 4); None for no limit.
        c_min: C_min, what a node must have free to be chosen, tuples/s (Eq. 3).
        index: how nodes near a virtual position are found: ``capacity-tree`` (exact, knows free
            capacity), ``kdtree`` (exact k nearest, as in the paper) or ``annoy`` (approximate k
            nearest, as in the paper; needs the extra ``annoy``).
        k: candidates per join of the k-nearest indexes; None takes the ratio of the join's required
            capacity to the median capacity, as in the paper.
        on_full: when the candidates have no room: ``expand`` searches wider and refuses what cannot
            fit at all; ``spread`` overloads near nodes evenly and reports it.
        refine: whether to improve the first assignment by local search and by cuts that pay; None
            does so up to 100,000 joins, and above where there is no room otherwise.
        cut_gain: share of a join's cost that a cut must save, 0 to 1; cuts cost traffic.
        neighbours: nodes considered for each join during refinement; None takes 64, and 32 from a
            thousand joins on, where the same time buys more elsewhere.
        seed: of the orders tried on small problems, and of ``annoy``.
        push_filters: whether filters of queries run before joins where what they read allows.
        split_aggregates: whether decomposable aggregates of queries get partial ones.
    """

    objective: str = "latency"
    sigma: float | None = None
    bandwidth: float | None = None
    c_min: float = 0.0
    index: Index = "capacity-tree"
    k: int | None = None
    on_full: OnFull = "expand"
    refine: bool | None = None
    cut_gain: float = 0.05
    neighbours: int | None = None
    seed: int = 0
    push_filters: bool = True
    split_aggregates: bool = True

    def __post_init__(self) -> None:
        check_choice("nova:", self, "objective", OBJECTIVES)
        check_choice("nova:", self, "index", get_args(Index))
        check_choice("nova:", self, "on_full", get_args(OnFull))
        check_range("nova:", self, "sigma cut_gain", 0, 1)
        check_range("nova:", self, "c_min", 0, math.inf)
        check_range("nova:", self, "k neighbours", 1, math.inf)
        rate = "a positive number of tuples/s"
        check_range("nova:", self, "bandwidth", POSITIVE, math.inf, rate)

    @property
    def finer_sigmas(self) -> tuple[float, ...]:
        """Sigmas to try in turn where joins find no room in pieces by `sigma`."""
        from nova_core.placement.partitioning import finer_sigmas

        if self.refine is False or self.index != "capacity-tree":
            return ()
        return finer_sigmas(self.sigma, self.bandwidth)


class Nova(Strategy):
    """The Nova approach (paper, Algorithm 1)."""

    name = "nova"
    Parameters = NovaParameters
    parameters: NovaParameters

    def place(self, problem: Problem) -> Plan:
        """Place every pair of the join matrix.

        Raises:
            InfeasibleError: when ``on_full`` is ``expand`` and something fits nowhere.
        """
        import numpy as np

        from nova_core.placement.assignment import Assigner
        from nova_core.placement.geometric_median import geometric_median, pair_anchors
        from nova_core.placement.kernels import tuning
        from nova_core.placement.partitioning import maximum_partition_rate

        p = self.parameters
        if p.refine is None and len(problem.matrix) > tuning.REFINED_JOINS:
            with suppress(InfeasibleError):  # refinement may find room
                plan = Nova(replace(p, refine=False)).place(problem)
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
            raise InfeasibleError(_no_room(problem, waiting, missing, p.bandwidth), missing)
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

    def place_queries(self, problem: Problem) -> Plan:
        """Place every operator of the problem's queries (paper, section 3.6).

        Raises:
            ProblemError: for queries that do not fit the problem.
            InfeasibleError: when ``on_full`` is ``expand`` and something fits nowhere.
        """
        from nova_core.queries.placing import place_queries

        return place_queries(problem, self.parameters)

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


def _no_room(problem: Problem, pieces: int, missing: float, bandwidth: float | None) -> str:
    limit = "" if bandwidth is None else f" or exceed t_b = {bandwidth:g} tuples/s"
    return (
        f"{problem.name}: {pieces} pieces of joins find no room{limit} even when cut: "
        f"{missing:g} tuples/s are missing; add capacity, lower sigma to cut finer, or accept "
        "overload with on_full=spread"
    )
