"""Algorithm 1 of Nova's paper, without what Nova adds to it."""

from __future__ import annotations

from dataclasses import dataclass

from nova_core.strategies.base import Strategy
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
    does. Whole queries are not the algorithm's.
    """

    name = "nova-paper"
    Parameters = NovaPaperParameters
    parameters: NovaPaperParameters
    place_queries = Strategy.place_queries
