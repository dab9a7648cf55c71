"""The parameters of Nova, of joins of pairs and of whole queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from nova_core.model.objectives import OBJECTIVES
from nova_core.strategies.base import POSITIVE, check_choice, check_range

Index = Literal["capacity-tree", "kdtree", "annoy"]
OnFull = Literal["expand", "spread"]


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
        share_operators: whether operators of queries that emit the same tuples are placed once.
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
    share_operators: bool = True

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
