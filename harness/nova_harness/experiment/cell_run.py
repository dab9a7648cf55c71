"""Plan, run, check and write one cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from typing import TYPE_CHECKING

import numpy as np
from msgspec import convert
from msgspec.structs import replace

from nova_harness.control.disturbances import added_hosts
from nova_harness.engines.base import ControlledEngine
from nova_harness.experiment.cells import Cell
from nova_harness.experiment.controlled import Control
from nova_harness.experiment.engine_run import Bed, Outcome, Timing, run_plan
from nova_harness.experiment.measured import kafka_figures, summary
from nova_harness.experiment.usage import mean_cores, usage_table
from nova_harness.results.run_folder import CellFolder
from nova_harness.results.schema import CellFacts, HostUse, Verification

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_harness.engines.base import Starter
    from nova_harness.experiment.document import Experiment
    from nova_testbed.inventory import Inventory
    from nova_workloads.base import Streams


def place(cell: Cell, problem: Problem, absent: Sequence[str] = ()) -> Plan:
    """The cell's plan.

    Args:
        cell: with a strategy.
        problem: to place.
        absent: hosts that it may not use yet.

    Raises:
        NovaError: for a strategy that cannot place this problem.
    """
    from nova_core.strategies.base import create

    nodes = problem.nodes
    worker = nodes.worker & ~np.isin(nodes.ids, absent)
    known = replaced(problem, nodes=replaced(nodes, worker=worker)) if absent else problem
    plan = create(cell.strategy.name, **cell.strategy.parameters).solve(known)
    return replaced(plan, problem=problem)


def starter(
    bed: Bed, cell: Cell, folder: CellFolder, plan: Plan, streams: Streams
) -> Starter | None:
    """Starts a flow whose joins the engine or a controller places; None for the plan itself."""
    by = cell.strategy.scheduled_by
    if by == "plan":
        return None
    if by == "engine":
        return lambda flow, sources, name: bed.engine.start(flow.unpinned(), sources, name)
    assert isinstance(bed.engine, ControlledEngine)
    return Control(bed.engine, folder.path / "control", bed.note, plan, streams.match).start


def run_cell(
    bed: Bed,
    experiment: Experiment,
    cell: Cell,
    problem: Problem,
    streams: Streams,
    folder: CellFolder,
    tell: Callable[[str], None],
) -> None:
    """Run a cell and write its directory, which replaces an existing one.

    Raises:
        NovaError: naming what failed; its directory then holds the verdict.
    """
    from nova_core.io.files import write_plan

    facts = replace(
        cell.facts(experiment),
        sources=len(problem.sources),
        expected_rate=streams.expected_rate,
    )
    folder.begin(facts)
    try:
        plan = place(cell, problem, added_hosts(experiment.disturbances))
        write_plan(plan, folder.path / "plan.json")
        outcome = run_plan(
            replaced(
                bed,
                disturbances=experiment.disturbances,
                starter=starter(bed, cell, folder, plan, streams),
            ),
            plan,
            streams,
            Timing(experiment.warm_up_s, experiment.duration_s, experiment.drain_s),
            stress=cell.stress,
            limited=True,
            name=f"nova {cell.name}",
            scratch=folder.path,
            tell=tell,
        )
        write_outcome(folder, facts, plan, streams, outcome, bed.deployment.hosts.inventory)
    except KeyboardInterrupt:
        folder.end("interrupted", "interrupted")
        raise
    except BaseException as error:
        folder.end("failed", str(error) or type(error).__name__)
        raise
    folder.finish()


def write_outcome(
    folder: CellFolder,
    facts: CellFacts,
    plan: Plan,
    streams: Streams,
    outcome: Outcome,
    inventory: Inventory,
) -> None:
    """Write the results of a cell.

    Args:
        folder: the cell's directory.
        facts: what was run.
        plan: that was run.
        streams: what its sources emit.
        outcome: of the run.
        inventory: of the hosts.
    """
    facts = replace(
        facts,
        start_ms=outcome.start_ms,
        measured_us=outcome.measured_us,
        # Longer than requested, where the machine was busy.
        warm_up_s=round(outcome.measured_us[0] / 1e6 - outcome.start_ms / 1e3, 3),
        late_s=outcome.late_s,
        counted_s=outcome.counted_s,
        truncated_bytes=outcome.truncated_bytes,
        restarts=outcome.restarts,
        dead_letters=outcome.dead_letters,
        events=list(outcome.events),
    )
    folder.write("cell", facts)
    (folder.path / "flow.json").write_text(outcome.flow)
    folder.write("verification", convert(outcome.verification.to_plain(), Verification))
    folder.write("operators", outcome.operators)
    sources, records, measured_us = outcome.sources, outcome.records, outcome.measured_us
    samples = streams.samples(plan, sources, records, measured_us)
    folder.write_table("samples", samples)
    folder.write_table("hosts", usage_table(outcome.series, outcome.start_ms / 1000))
    compared = streams.compare(plan, sources, records, finished=outcome.finished)
    folder.write("check", compared)
    kafka = None
    if outcome.samples is not None:
        # Tuples with columns do not say how long they waited.
        waited_us = None if streams.match is None else records["waited_us"]
        kafka = kafka_figures(samples, waited_us, outcome.samples, measured_us)
    begin, end = (moment / 1e6 for moment in measured_us)
    used = mean_cores(outcome.series, begin, end)
    hosts = {
        host.name: HostUse(cpu_cores_mean=used.get(host.name), limit_cores=host.cpu)
        for host in inventory.hosts
    }
    figures = summary(samples, streams.tuples_per_s(samples, measured_us), measured_us)
    folder.write("summary", replace(figures, kafka=kafka, hosts=hosts))
