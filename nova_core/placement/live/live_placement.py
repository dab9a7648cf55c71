"""A placed problem that follows events, changing only what they concern (paper, section 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec
import numpy as np
from msgspec import UNSET

from nova_core.errors import InfeasibleError, PlanError, ProblemError
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.placement.live.changes import delta_of
from nova_core.placement.live.demand import Demand
from nova_core.placement.live.documents import plan_of, problem_of, rows_of
from nova_core.placement.live.events import (
    AddOperator,
    AddQuery,
    AddSource,
    Batch,
    ChangeCapacity,
    ChangeLink,
    ChangeRate,
    ChangeSelectivity,
    Event,
    FailNode,
    MoveNode,
    MoveSink,
    Rebalance,
    RemoveOperator,
    RemoveQuery,
    RemoveSource,
    RemoveWorker,
)
from nova_core.placement.live.handlers import HANDLERS, check_problem
from nova_core.placement.live.pairs import PairDemand
from nova_core.placement.live.placer import NoRoomError, Placer
from nova_core.placement.live.policy import Policy
from nova_core.placement.live.queries import QueryDemand
from nova_core.placement.live.state import LiveState


class LivePlacement:
    """A plan that follows events.

    Instances stay where they are unless an event takes their node or room from them, or they gain
    more than the policy's threshold; virtual positions are kept unless a source or sink of the
    pair, or a weight, has changed. Time grows with what an event concerns, not with the topology.
    """

    def __init__(self, problem: Problem, plan: Plan, policy: Policy | None = None) -> None:
        """Take over a placed problem.

        Args:
            problem: the placed problem.
            plan: a plan of it with direct flows.
            policy: when instances move by choice; None for the defaults.

        Raises:
            PlanError: for a plan of another problem, one that relays, or one that breaks a
                constraint that it does not name in `breaks`.
            ProblemError: for a policy that names an unknown operator.
        """
        plan.require_problem(problem)
        report = verify(plan, spelled_out=1)
        if not report.honest:
            broken = next(v for v in report.violations if v.constraint not in report.accepted)
            raise PlanError(f"live: the plan {report.summary()}: {broken.text}")
        self._start(problem, plan, policy or Policy(), 0)

    def _start(self, problem: Problem, plan: Plan, policy: Policy, version: int) -> None:
        self._state = LiveState(problem, plan, _demand_of)
        self._state.version = version
        self.policy = policy
        named = (*policy.pinned, *policy.state_bytes)
        names = self._state.demand.names() if named else ()
        for name in named:
            if name not in names:
                known = ", ".join(list(names)[:8])
                raise ProblemError(f"live: policy: unknown operator {name!r}; there are {known}")
        self._placer = Placer(self._state, policy)

    # --- reading ----------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Events so far; a batch is one."""
        return self._state.version

    @property
    def pinned(self) -> tuple[str, ...]:
        """Operators whose instances stay where they are."""
        return tuple(self._placer.pinned)

    def problem(self) -> Problem:
        """The present problem, in time proportional to its size."""
        return problem_of(self._state)

    def plan(self, problem: Problem | None = None) -> Plan:
        """The present plan, in time proportional to its size.

        Args:
            problem: result of `problem` since the last event; None calls it.
        """
        return plan_of(self._state, problem or self.problem())

    def reach(self, event: Event) -> int:
        """How many operators an event concerns: an estimate of its time before it is applied.

        Operators that move to make room for them are not counted.
        """
        s = self._state
        if isinstance(event, Batch):
            return sum(self.reach(each) for each in event.events)
        if isinstance(event, Rebalance):
            return int(s.operators.alive[: s.operators.used].sum())
        if isinstance(event, AddSource) and event.joins is not UNSET:
            return len(event.joins)
        if isinstance(event, AddOperator):
            return len(event.pairs)
        if isinstance(event, AddQuery):
            return len(event.query.operators)
        if isinstance(event, MoveSink | RemoveOperator):
            return len(s.demand.of(event.operator))
        if isinstance(event, RemoveQuery | ChangeSelectivity):
            return len(s.demand.of(event.query))
        if isinstance(event, ChangeRate | RemoveSource):
            return len(s.demand.reading(s.source_index.get(event.source, -1)))
        if isinstance(event, ChangeLink):
            ends = (s.node_index.get(name, -1) for name in (event.source_node, event.target_node))
            return sum(len(s.residents.of(node)) for node in ends)
        if isinstance(event, ChangeCapacity | FailNode | MoveNode | RemoveWorker):
            node = s.node_index.get(event.node, -1)
            return len(s.residents.of(node)) + len(s.demand.around(node))
        return 1

    # --- applying ---------------------------------------------------------------------------------

    def apply(
        self,
        event: Event,
        *,
        overload: bool | None = None,
        record: Callable[[PlanDelta], None] | None = None,
    ) -> PlanDelta:
        """Apply an event; returns the changes of the plan.

        Args:
            event: what happened; a `Batch` takes effect as a whole or not at all.
            overload: whether nodes near by may be overloaded when nothing fits; None leaves it to
                the event, which may leave it to the policy.
            record: called with the delta before the event takes effect; if it raises, the event
                does not take effect.

        Raises:
            InfeasibleError: when it cannot be satisfied, saying how many tuples/s are missing.
            ProblemError: when it has unknown names or is not valid for this problem.
            In either case, and when ``record`` raises, the state is as it was.
        """
        s = self._state
        events = event.events if isinstance(event, Batch) else [event]
        breaks = s.breaks
        default = self.policy.overload if event.overload is UNSET else event.overload
        s.version += 1
        try:
            for number, each in enumerate(events):
                allowed = default if each.overload is UNSET else each.overload
                if overload is not None:
                    allowed = overload
                try:
                    HANDLERS[type(each)](self._placer, each, bool(allowed))
                except ProblemError as error:
                    if event is each:
                        raise
                    raise ProblemError(f"events[{number}]: {error}") from None
            check_problem(s)
            delta = delta_of(s, breaks, s.version - 1)
            if record is not None:
                record(delta)
        except NoRoomError as error:
            self._undo()
            text = f"{error.text}: {error.missing:g} tuples/s are missing"
            raise InfeasibleError(text, error.missing) from None
        except BaseException:
            self._undo()
            raise
        s.commit()
        return delta

    def _undo(self) -> None:
        self._state.roll_back()
        self._state.version -= 1

    def rebalance(self, moves: int) -> PlanDelta:
        """Improve the whole placement by at most ``moves`` moves, those that gain most first.

        Each gains more than the policy's threshold. Takes time proportional to the plan.
        """
        return self.apply(Rebalance(moves=moves))

    # --- compacting -------------------------------------------------------------------------------

    def compact(self, record: Callable[[Problem, Plan, Policy], None] | None = None) -> None:
        """Free the memory of removed rows and recompute free capacities.

        Decisions stay, and so does all that later decisions depend on.

        Args:
            record: called with the new problem, plan and policy before they take effect; if it
                raises, nothing changes.
        """
        problem, plan, policy = self.recorded()
        fresh = type(self).__new__(type(self))
        fresh._start(problem, plan, policy, self.version)
        fresh._set_moved(self.moved())
        if record is not None:
            record(problem, plan, policy)
        self.policy, self._state, self._placer = policy, fresh._state, fresh._placer

    def recorded(self) -> tuple[Problem, Plan, Policy]:
        """What `restore` takes, besides the version and `moved`."""
        problem = self.problem()
        policy = msgspec.structs.replace(
            self.policy, pinned=self.pinned, state_bytes=dict(self._placer.state_bytes)
        )
        return problem, self.plan(problem), policy

    @classmethod
    def restore(
        cls, problem: Problem, plan: Plan, policy: Policy, version: int, moved: dict[int, int]
    ) -> Self:
        """A placement in the state that `compact` recorded.

        Args:
            problem: recorded problem.
            plan: recorded plan.
            policy: recorded policy.
            version: number of events before.
            moved: from `moved`.

        Raises:
            PlanError: when these are inconsistent.
            ProblemError: as the constructor.
        """
        live = cls(problem, plan, policy)
        live._state.version = version
        operators = plan.operator_count
        for row, when in moved.items():
            if not (0 <= row < operators and 0 <= when <= version):
                raise PlanError(
                    f"live: operator {row} is said to have moved at version {when}; there are "
                    f"{operators} operators and {version} versions"
                )
        live._set_moved(moved)
        return live

    def moved(self) -> dict[int, int]:
        """The version at which operators moved last, by row of the plan."""
        o, moved = self._state.operators, self._state.operators.moved
        alive = np.flatnonzero(o.alive[: o.used])
        rows = rows_of(self._state, self.problem())[alive]
        found = moved[alive] >= 0
        return dict(zip(rows[found].tolist(), moved[alive][found].tolist(), strict=True))

    def _set_moved(self, moved: dict[int, int]) -> None:
        for row, when in moved.items():
            self._state.operators.moved[row] = when


def _demand_of(state: LiveState, problem: Problem) -> Demand:
    if problem.queries:
        return QueryDemand(state, problem)
    return PairDemand(state, problem)
