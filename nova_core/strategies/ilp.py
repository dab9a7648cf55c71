"""The best placement, exactly: ground truth for small problems."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_core.errors import ProblemError
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies.base import WHOLE, Strategy, check_choice, check_range, parameter_dict

# Pairs of a join and a candidate; more can take minutes where capacity is scarce.
MOST_COLUMNS = 100_000
# Pairs of a join and a node that may host it, candidate or not: a linear program looks at all.
MOST_PAIRS = 1_000_000
# Candidates of a join where all nodes would be too many.
CANDIDATES = 60


@dataclass(frozen=True)
class IlpParameters:
    """What is minimized, whether joins may be cut, and the limits of the search.

    Attributes:
        objective: ``latency``, ``network-usage`` or ``source-latency``.
        cut: whether a join may be cut into the grid of Eq. 7; for very small problems only.
        sigma: the scaling factor of Eq. 7, from 0 to 1; used with ``cut``.
        time_limit: seconds; then the best placement found so far is taken, which may be another
            on another machine.
        gap: share of its cost by which a placement may be from the optimum.
        candidates: nodes considered for a join in the mean, those where joins add the least to a
            lower bound; more where the joins do not fit on them. None takes all up to 100,000 pairs
            of a join and a node, and 60 above. Not used with ``cut``.
    """

    objective: str = "latency"
    cut: bool = False
    sigma: float = 0.4
    time_limit: float = 60.0
    gap: float = 1e-4
    candidates: int | None = None

    def __post_init__(self) -> None:
        from nova_core.evaluation.mip import check_limits

        check_choice("ilp:", self, "objective", OBJECTIVES)
        check_range("ilp:", self, "sigma", 0, 1)
        check_range("ilp:", self, "candidates", 1, expected=WHOLE)
        check_limits(self.time_limit, self.gap)


class Ilp(Strategy):
    """Solve a mixed-integer program (HiGHS): each join on one node, none over its capacity."""

    name = "ilp"
    ignores = ("requirement", "minimum-capacity", "link")
    Parameters = IlpParameters
    parameters: IlpParameters

    def place(self, problem: Problem) -> Plan:
        """Place; the plan's notes have its ``cost``, a lower ``bound`` of any, and ``candidates``.

        The bound holds for whole joins on all nodes, not on the candidates alone.

        Raises:
            InfeasibleError: when the joins do not fit, with what is lacking.
            ProblemError: for a problem that is too large, or when time ran out before anything was
                found.
        """
        from nova_core.evaluation import exact_optimum, exact_optimum_with_cuts

        p, joins = self.parameters, len(problem.matrix)
        hosts = int((problem.nodes.worker & (problem.nodes.capacity > 0)).sum())
        candidates = p.candidates
        if candidates is None and joins * hosts > MOST_COLUMNS:
            candidates = CANDIDATES
        if joins * hosts > MOST_PAIRS or joins * min(hosts, candidates or hosts) > MOST_COLUMNS:
            raise ProblemError(
                f"ilp: {joins:,} joins on {hosts:,} nodes; at most {MOST_PAIRS:,} pairs of a join "
                f"and a node are supported, {MOST_COLUMNS:,} of them candidates; use a smaller "
                "problem, or fewer candidates"
            )
        if p.cut:
            optimum = exact_optimum_with_cuts(problem, p.sigma, p.objective, p.time_limit, p.gap)
        else:
            optimum = exact_optimum(problem, p.objective, p.time_limit, p.gap, candidates)
        return replace(
            optimum.plan,
            parameters=parameter_dict(p),
            breaks=self.ignores,
            notes={
                "cost": optimum.value,
                "bound": optimum.bound,
                "candidates": optimum.candidates,
            },
        )
