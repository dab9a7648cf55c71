"""Nova: placement, replication and partitioning of stream joins.

What programs use is imported from here: ``from nova_core import place, read_problem, verify``. A
name's module is loaded when the name is first used. All other modules may change without notice.
"""

from __future__ import annotations

# True for type checkers; typing takes longer to import than all the rest.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from nova_core.costspace import CostSpace as CostSpace
    from nova_core.costspace import LiveCostSpace as LiveCostSpace
    from nova_core.costspace import embed as embed
    from nova_core.errors import InfeasibleError as InfeasibleError
    from nova_core.errors import NovaError as NovaError
    from nova_core.errors import PlanError as PlanError
    from nova_core.errors import ProblemError as ProblemError
    from nova_core.errors import ProblemWarning as ProblemWarning
    from nova_core.errors import UnwritableError as UnwritableError
    from nova_core.evaluation import Evaluation as Evaluation
    from nova_core.evaluation import evaluate as evaluate
    from nova_core.evaluation import lower_bound as lower_bound
    from nova_core.io import read_plan as read_plan
    from nova_core.io import read_problem as read_problem
    from nova_core.io import write_plan as write_plan
    from nova_core.io import write_problem as write_problem
    from nova_core.io.examples import load_example as load_example
    from nova_core.model import Instances as Instances
    from nova_core.model import JoinMatrix as JoinMatrix
    from nova_core.model import Joins as Joins
    from nova_core.model import Links as Links
    from nova_core.model import Nodes as Nodes
    from nova_core.model import PairLatencies as PairLatencies
    from nova_core.model import Partitions as Partitions
    from nova_core.model import Plan as Plan
    from nova_core.model import Problem as Problem
    from nova_core.model import Routes as Routes
    from nova_core.model import Sources as Sources
    from nova_core.model.plan_delta import PlanDelta as PlanDelta
    from nova_core.model.verify import Report as Report
    from nova_core.model.verify import verify as verify
    from nova_core.placement.live import AddOperator as AddOperator
    from nova_core.placement.live import AddPair as AddPair
    from nova_core.placement.live import AddSource as AddSource
    from nova_core.placement.live import AddWorker as AddWorker
    from nova_core.placement.live import Batch as Batch
    from nova_core.placement.live import ChangeCapacity as ChangeCapacity
    from nova_core.placement.live import ChangeLink as ChangeLink
    from nova_core.placement.live import ChangeRate as ChangeRate
    from nova_core.placement.live import Event as Event
    from nova_core.placement.live import FailNode as FailNode
    from nova_core.placement.live import Journal as Journal
    from nova_core.placement.live import LivePlacement as LivePlacement
    from nova_core.placement.live import MoveNode as MoveNode
    from nova_core.placement.live import MoveSink as MoveSink
    from nova_core.placement.live import Pin as Pin
    from nova_core.placement.live import Policy as Policy
    from nova_core.placement.live import Rebalance as Rebalance
    from nova_core.placement.live import RemoveOperator as RemoveOperator
    from nova_core.placement.live import RemovePair as RemovePair
    from nova_core.placement.live import RemoveSource as RemoveSource
    from nova_core.placement.live import RemoveWorker as RemoveWorker
    from nova_core.placement.live import parse_event as parse_event
    from nova_core.strategies import Strategy as Strategy
    from nova_core.strategies import create as create
    from nova_core.strategies import place as place
else:
    # Type checkers take the names above; a test holds these equal to them.
    _NAMES = {
        "costspace": "CostSpace LiveCostSpace embed",
        "errors": "InfeasibleError NovaError PlanError ProblemError ProblemWarning UnwritableError",
        "evaluation": "Evaluation evaluate lower_bound",
        "io": "read_plan read_problem write_plan write_problem",
        "model": "Instances JoinMatrix Joins Links Nodes PairLatencies Partitions Plan Problem "
        "Routes Sources",
        "io.examples": "load_example",
        "model.plan_delta": "PlanDelta",
        "model.verify": "Report verify",
        "placement.live": "AddOperator AddPair AddSource AddWorker Batch ChangeCapacity ChangeLink "
        "ChangeRate Event FailNode Journal LivePlacement MoveNode MoveSink Pin Policy Rebalance "
        "RemoveOperator RemovePair RemoveSource RemoveWorker parse_event",
        "strategies": "Strategy create place",
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
    __all__ = sorted(_MODULE_OF)

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULE_OF})
