"""The commands ``nova observe`` and ``nova flink ...``: jobs of one's own on a Flink cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange
from nova_engines.documents import read_plain

if TYPE_CHECKING:
    from nova_flink.rest import Rest

IMAGE, MEMORY = "flink:2.3.0", "1728m"
rest_option = click.option(
    "--rest", metavar="URL", required=True, help="Of the cluster's REST interface."
)


@click.command(short_help="Measure the rates of a running Flink job.")
@click.argument("job")
@click.argument("problem", type=paths.INPUT)
@rest_option
@click.option(
    "--for",
    "seconds",
    type=NumberRange(min=1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to look; longer than the job's windows.",
)
@shared.output_option("The problem with the rates found, as JSON.", required=True)
def observe(job: str, problem: Path, rest: str, seconds: float, output: Path) -> None:
    """Measure what JOB's sources send and its operators emit, and write PROBLEM with these rates.

    JOB is an id or a name. PROBLEM is what the plug-in wrote when the job was submitted
    (nova.problem-file, as JSON).
    """
    from nova_core.io.safe_files import write_text
    from nova_flink.observing import observe as look

    document = _document(problem)
    cluster = _rest(rest)
    from nova_flink.own_jobs import find

    job_id = find(cluster, job)
    with console.progress("observing") as progress:
        observed = look(cluster, job_id, document, seconds, progress)
    write_text(output, json.dumps(observed, indent=1) + "\n")
    rows = [(one["id"], f"{one['rate']:.1f} tuples/s") for one in observed["sources"]]
    for query in observed["queries"]:
        for one in query["operators"]:
            if "selectivity" in one:
                rows.append((one["id"], f"selectivity {one['selectivity']:.4g}"))
            elif "output_rate" in one:
                rows.append((one["id"], f"{one['output_rate']:.1f} tuples/s"))
    columns = ["source or operator", "tuples/s or selectivity"]
    console.show(console.table(f"job {job_id}", columns, rows))
    console.say(f"problem written to {output}")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def flink() -> None:
    """Jobs of your own on Flink, which Nova's plug-in places."""


@flink.command(short_help="Write what TaskManagers need to be nodes.")
@click.argument("nodes", type=paths.INPUT)
@shared.output_option("Directory to make; must not exist.", required=True)
@click.option("--kubernetes", is_flag=True, help="Write a TaskManager for each node as pods.")
@click.option("--image", metavar="IMAGE", help=f"Of Flink, on Kubernetes [default: {IMAGE}].")
@click.option(
    "--memory",
    metavar="SIZE",
    help=f"Of a TaskManager's process, on Kubernetes [default: {MEMORY}].",
)
@click.option(
    "--jobmanager",
    metavar="ADDRESS",
    help="An existing one, on Kubernetes [default: one is written].",
)
def taskmanagers(
    nodes: Path,
    output: Path,
    kubernetes: bool,
    image: str | None,
    memory: str | None,
    jobmanager: str | None,
) -> None:
    """Write the settings by which TaskManagers of your own cluster are NODES.

    NODES is a file with nodes, which may be a whole problem: three settings for each node's
    TaskManager, or with --kubernetes a StatefulSet for each node.
    """
    from nova_core.io.files import read_addresses
    from nova_engines.bundle import write_bundle
    from nova_flink import own_cluster

    if not kubernetes and (image or memory or jobmanager):
        raise NovaError("--image, --memory, --jobmanager: go with --kubernetes")
    addresses = read_addresses(nodes)
    title = os.fsencode(nodes.name).decode(errors="replace")
    if kubernetes:
        pods = image or IMAGE, memory or MEMORY, jobmanager or ""
        files = own_cluster.kubernetes_files(title, addresses, *pods)
    else:
        files = own_cluster.configuration_files(title, addresses)
    written = write_bundle(output, files)
    console.say(f"{len(written)} files in {output}; read {output / 'README.md'}")


@flink.command(context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("plan", type=paths.INPUT)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@rest_option
@click.option(
    "--savepoints",
    type=paths.OutputPath(text=True),
    metavar="DIRECTORY",
    help="Where every process of the cluster can write [default: as the cluster is configured].",
)
@shared.json_option
@click.pass_context
def move(
    ctx: click.Context,
    job: str,
    plan: Path,
    command: tuple[str, ...],
    rest: str,
    savepoints: str | None,
    as_json: bool,
) -> None:
    """Stop JOB with a savepoint and have COMMAND submit it again from there, pinned by PLAN.

    COMMAND is what submitted the job, behind "--", as in: nova flink move JOB plan.json --rest URL
    -- flink run -d job.jar. Exit code 1 when a part is not where the plan has it.
    """
    from nova_flink import moving, own_jobs

    cluster = _rest(rest)
    job_id = own_jobs.find(cluster, job)
    moved = moving.move(cluster, job_id, plan, command, savepoints=savepoints, progress=console.say)
    if as_json:
        console.print_json(
            {
                "job": moved.job,
                "was": job_id,
                "savepoint": moved.savepoint,
                "pause_s": round(moved.pause_s, 1),
                **moved.found.to_plain(),
            }
        )
    else:
        right = sum(row.ok for row in moved.found.rows)
        console.show(
            f"job {moved.job}: {right} of {len(moved.found.rows)} parts where the plan has them; "
            f"paused for {moved.pause_s:.1f} s"
        )
    ctx.exit(0 if moved.found.ok else 1)


def _rest(url: str) -> Rest:
    from nova_flink.rest import Rest

    return Rest.at(url)


def _document(file: Path) -> dict[str, object]:
    from nova_core.io.files import read_problem

    document = read_plain(file)
    if not isinstance(document, dict) or not document.get("queries") or not document.get("sources"):
        raise NovaError(f"{file}: not a problem with sources and queries")
    read_problem(file)  # refuses one that is damaged
    return document
