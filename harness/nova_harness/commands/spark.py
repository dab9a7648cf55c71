"""The commands ``nova spark ...``: did a plan's tasks run where they should?"""

from __future__ import annotations

from pathlib import Path

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def spark() -> None:
    """Look at plans that run on Spark."""


@spark.command()
@click.argument("record", type=paths.INPUT)
@click.option(
    "--plan", type=paths.INPUT, help="Compare with this plan, not with what the job says."
)
@click.option("--problem", "-p", type=paths.INPUT, help="The problem that plan answers.")
@click.option("--url", help="Of the job's pages or a history server [default: as in RECORD].")
@shared.json_option
@click.pass_context
def verify(
    ctx: click.Context,
    record: Path,
    plan: Path | None,
    problem: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Compare where the tasks of a job ran with its plan; exit code 1 when one ran elsewhere.

    RECORD is the file that the job keeps, record.json where run.sh was started.
    """
    from nova_spark.flow import from_plan
    from nova_spark.rest import Rest
    from nova_spark.verification import Record
    from nova_spark.verification import verify as compare

    if (plan is None) != (problem is None):
        raise NovaError("--plan and --problem: give both, or neither")
    told = Record.read(record)
    planned = None
    if plan is not None and problem is not None:
        asked = shared.load_problem(problem, None)
        flow = from_plan(shared.load_plan(plan, asked), asked)
        planned = {stage.name: stage.node for stage in flow.stages}
    found = compare(Rest(url or told.url, told.application), told.steps, planned)
    if as_json:
        console.print_json({"application": told.application, **found.to_plain()})
    else:
        table = console.table(
            f"application {told.application}",
            ["stage", "planned", "ran on", "host", "tasks"],
            caption="every stage ran where the plan has it" if found.ok else "not as planned",
        )
        for row in found.rows:
            colour = "" if row.ok else "[red]"
            actual, hosts = (", ".join(some) or "-" for some in (row.actual, row.hosts))
            table.add_row(row.step, row.node or "-", f"{colour}{actual}", hosts, str(row.tasks))
        console.show(table)
    ctx.exit(0 if found.ok else 1)
