"""Live placement: a placed problem that follows events and tells what changes (paper, section 3.5).

``LivePlacement(problem, plan)`` takes a plan over; ``apply(event)`` returns a `PlanDelta`.
"""

from __future__ import annotations

from nova_core.placement.live.events import (
    AddSource,
    AddWorker,
    Batch,
    ChangeCapacity,
    ChangeLink,
    ChangeRate,
    Event,
    FailNode,
    JoinWith,
    MoveNode,
    MoveSink,
    Pin,
    Rebalance,
    RemoveSource,
    RemoveWorker,
    parse_event,
)
from nova_core.placement.live.journal import Journal
from nova_core.placement.live.live_placement import LivePlacement
from nova_core.placement.live.policy import Policy

__all__ = [
    "AddSource",
    "AddWorker",
    "Batch",
    "ChangeCapacity",
    "ChangeLink",
    "ChangeRate",
    "Event",
    "FailNode",
    "JoinWith",
    "Journal",
    "LivePlacement",
    "MoveNode",
    "MoveSink",
    "Pin",
    "Policy",
    "Rebalance",
    "RemoveSource",
    "RemoveWorker",
    "parse_event",
]
