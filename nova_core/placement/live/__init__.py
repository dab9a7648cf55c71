"""Live placement: a placed problem that follows events and reports changes (paper, section 3.5).

``LivePlacement(problem, plan)`` takes a plan over; ``apply(event)`` returns a `PlanDelta`.
"""

from __future__ import annotations

from nova_core.placement.live.events import AddOperator as AddOperator
from nova_core.placement.live.events import AddPair as AddPair
from nova_core.placement.live.events import AddQuery as AddQuery
from nova_core.placement.live.events import AddSource as AddSource
from nova_core.placement.live.events import AddWorker as AddWorker
from nova_core.placement.live.events import Batch as Batch
from nova_core.placement.live.events import ChangeCapacity as ChangeCapacity
from nova_core.placement.live.events import ChangeLink as ChangeLink
from nova_core.placement.live.events import ChangeRate as ChangeRate
from nova_core.placement.live.events import ChangeSelectivity as ChangeSelectivity
from nova_core.placement.live.events import Event as Event
from nova_core.placement.live.events import FailNode as FailNode
from nova_core.placement.live.events import JoinWith as JoinWith
from nova_core.placement.live.events import MoveNode as MoveNode
from nova_core.placement.live.events import MoveSink as MoveSink
from nova_core.placement.live.events import NewOperator as NewOperator
from nova_core.placement.live.events import NewPair as NewPair
from nova_core.placement.live.events import Pin as Pin
from nova_core.placement.live.events import Rebalance as Rebalance
from nova_core.placement.live.events import RemoveOperator as RemoveOperator
from nova_core.placement.live.events import RemovePair as RemovePair
from nova_core.placement.live.events import RemoveQuery as RemoveQuery
from nova_core.placement.live.events import RemoveSource as RemoveSource
from nova_core.placement.live.events import RemoveWorker as RemoveWorker
from nova_core.placement.live.events import parse_event as parse_event
from nova_core.placement.live.journal import Journal as Journal
from nova_core.placement.live.live_placement import LivePlacement as LivePlacement
from nova_core.placement.live.policy import Policy as Policy
