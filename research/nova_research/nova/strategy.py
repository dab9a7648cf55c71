"""Algorithm 1 of Nova's paper, without what Nova adds to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies.nova import Nova
from nova_core.strategies.nova_parameters import Index, NovaParameters


@dataclass(frozen=True)
class NovaPaperParameters(NovaParameters):
    """Parameters of `Nova`, with the paper's choices where Nova's own differ."""

    index: Index = "kdtree"
    refine: bool | None = False


class NovaPaper(Nova):
    """Algorithm 1 as the paper has it, to see what Nova's improvements bring.

    Joins choose one after the other among their k nearest nodes, are cut over these where none has
    room, and are not moved afterwards (section 3.4). What fits on no k nodes is placed as `Nova`
    does. Whole queries, which the algorithm does not have, are placed as they are written, one
    after the other, by `Nova`'s index; nothing is moved afterwards either.
    """

    name = "nova-paper"
    Parameters = NovaPaperParameters
    parameters: NovaPaperParameters

    def place(self, problem: Problem) -> Plan:
        """Place; errors are those of `Nova`."""
        p = self.parameters
        if not problem.queries or p.index != "kdtree":
            return super().place(problem)
        plan = Nova(
            replace(
                p,
                index="capacity-tree",
                push_filters=False,
                split_aggregates=False,
                share_operators=False,
            )
        ).place(problem)
        return replace(plan, strategy=self.name)
