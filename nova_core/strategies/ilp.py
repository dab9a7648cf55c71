"""The best placement, exactly: ground truth for small problems."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_core.errors import ProblemError
from nova_core.model.expansion import graph_of
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies.base import WHOLE, Strategy, check_choice, check_range, parameter_dict

# Pairs of an operator and a candidate, and of nodes at both ends of a link between operators; more
# can take minutes where capacity is scarce.
MOST_COLUMNS = 100_000
# Pairs of an operator and a node that may host it, candidate or not: a linear program looks at all.
MOST_PAIRS = 1_000_000
# Candidates of an operator where all nodes would be too many.
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
        candidates: nodes considered for an operator in the mean, those where operators add the
            least to a lower bound; more where they do not fit on them. None takes all up to 100,000
            pairs of an operator and a node, and 60 above. Not used with ``cut``, nor for operators
            that feed each other.
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
    """Solve a mixed-integer program (HiGHS): each operator on one node, none over its capacity."""

    name = "ilp"
    ignores = ("requirement", "minimum-capacity", "link")
    Parameters = IlpParameters
    parameters: IlpParameters

    def place(self, problem: Problem) -> Plan:
        """Place; the plan's notes have its ``cost``, a lower ``bound`` of any, and ``candidates``.

        The bound holds for whole operators on all nodes, not on the candidates alone.

        Raises:
            InfeasibleError: when operators do not fit, with what is lacking.
            ProblemError: for a problem that is too large, or when time ran out before anything was
                found.
        """
        from nova_core.evaluation import exact_optimum, exact_optimum_with_cuts

        p, candidates = self.parameters, self._candidates(problem)
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

    def _candidates(self, problem: Problem) -> int | None:
        """Nodes considered for an operator in the mean, None for all.

        Raises:
            ProblemError: for a problem that is too large.
        """
        graph, candidates = graph_of(problem), self.parameters.candidates
        operators, links = len(graph.bodies), len(graph.inner)
        hosts = int((problem.nodes.worker & (problem.nodes.capacity > 0)).sum())
        if links:
            columns = operators * hosts + links * hosts**2
            if columns > MOST_COLUMNS:
                raise ProblemError(
                    f"ilp: {operators:,} operators, {links:,} links between them and {hosts:,} "
                    f"nodes make {columns:,} variables; at most {MOST_COLUMNS:,} are supported; "
                    "use a smaller problem"
                )
            return None
        if candidates is None and operators * hosts > MOST_COLUMNS:
            candidates = CANDIDATES
        pairs = operators * hosts
        if pairs > MOST_PAIRS or operators * min(hosts, candidates or hosts) > MOST_COLUMNS:
            raise ProblemError(
                f"ilp: {operators:,} operators on {hosts:,} nodes; at most {MOST_PAIRS:,} pairs of "
                f"an operator and a node are supported, {MOST_COLUMNS:,} of them candidates; use a "
                "smaller problem, or fewer candidates"
            )
        return candidates
