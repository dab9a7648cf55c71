"""Checks that every task ran on the node the plan says, by what Spark itself reports.

Spark's REST interface reports on which executor a task ran, and the executor's address. A step's
own tasks report which stages the step became, as Spark has no names for stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from nova_engines.verification import Row, Verification
from nova_spark.rest import Rest, SparkError

# Only this many of a step's last stages are checked.
LAST = 5


@dataclass(frozen=True)
class Step:
    """A job's report on one of its steps.

    Attributes:
        name: as in the flow, or as the user called it; may be several steps'.
        node: where it is to run.
        stages: ids of Spark's stages it has been part of, ascending.
        task: number of its task in those; None where all their tasks are its own.
        host: address of its node.
    """

    name: str
    node: str
    stages: tuple[int, ...]
    task: int | None = None
    host: str = ""


@dataclass(frozen=True)
class Record:
    """A job's report on itself, kept in a file for `verify`.

    Attributes:
        url: of the application's pages.
        application: its id.
        steps: all of them.
    """

    url: str
    application: str
    steps: tuple[Step, ...]


def verify(
    rest: Rest,
    steps: Sequence[Step],
    planned: Mapping[str, str] | None = None,
    addresses: Mapping[str, str] | None = None,
) -> Verification:
    """Compare where tasks ran with where they should.

    Args:
        rest: the application.
        steps: what the job reports.
        planned: nodes of the expected steps, by name; what the job reports, if not given.
        addresses: of all nodes; those of the steps' nodes, if not given. Jobs that ran earlier in
            the same application may have used others.

    Returns:
        A row per step, with the nodes its tasks ran on and how many were checked.

    Raises:
        SparkError: when nothing answers, or there is no step to check.
    """
    parts: dict[str, list[Step]] = {}
    for step in steps:
        parts.setdefault(step.name, []).append(step)
    if planned is None:
        planned = {step.name: step.node for step in steps}
    at_address = {step.host: step.node for step in steps if step.host}
    at_address |= {host: node for node, host in (addresses or {}).items()}
    homes: dict[str, tuple[str, str]] = {}
    for one in rest.executors():
        host = str(one["hostPort"]).rpartition(":")[0]
        homes[str(one["id"])] = at_address.get(host, f"host {host}"), host
    attempts: dict[int, list[int]] = {}
    titles: dict[int, str] = {}
    for one in rest.stages():
        attempts.setdefault(int(one["stageId"]), []).append(int(one["attemptId"]))
        titles[int(one["stageId"])] = str(one["name"])

    # Steps may share a stage.
    tasks_of = cache(rest.tasks)

    def row(name: str, node: str | None, ran: Iterable[tuple[int, int | None]]) -> Row:
        on = [
            homes.get(str(task["executorId"]), (f"executor {task['executorId']}", "?"))
            for stage, number in ran
            for attempt in attempts.get(stage, ())
            for task in tasks_of(stage, attempt)
            if number is None or int(task["index"]) == number
        ]
        nodes = ", ".join(sorted({at for at, _ in on}))
        status = f"{len(on)} tasks on {', '.join(sorted({host for _, host in on}))}"
        return Row(name, node, nodes or None, status if on else "no task yet")

    def last(step: Step) -> list[tuple[int, int | None]]:
        return [(one, step.task) for one in step.stages if one in attempts][-LAST:]

    rows = [
        row(name, node, (one for step in parts.get(name, ()) for one in last(step)))
        for name, node in planned.items()
    ]
    claimed = {stage for step in steps for stage in step.stages}
    strays = (step for step in steps if step.name not in planned)
    rows += [row(step.name, None, last(step)) for step in strays]
    for stage in sorted(set(attempts) - claimed):
        stage_row = row(f"stage {stage}: {titles[stage]}", None, [(stage, None)])
        # Stages that only start an executor, or that a step has not reported yet, run in a node's
        # executor like any other; a stage in an executor of no node is unexpected.
        if any(
            one.startswith(("host ", "executor ")) for one in (stage_row.actual or "").split(", ")
        ):
            rows.append(stage_row)
    if not rows:
        raise SparkError(f"application {rest.application}: its job says of no step where it ran")
    return Verification(tuple(rows))
