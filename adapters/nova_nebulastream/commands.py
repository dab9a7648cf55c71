"""The commands ``nova nebulastream ...``: queries of a plan on NebulaStream's workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_engines.verification import Row, Verification
    from nova_nebulastream.bundle import Bundle
    from nova_nebulastream.client import Cli, Started

bundle_argument = click.argument("directory", type=paths.InputPath(exists=True, file_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="Write the answer as JSON.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def nebulastream() -> None:
    """Start the queries of a plan, which `nova translate` has written, on NebulaStream."""


@nebulastream.command()
@bundle_argument
@json_option
@click.pass_context
def check(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Ask nes-cli where it would place the queries of DIRECTORY, and start nothing.

    Exit code 1 when an operator would run elsewhere than planned.
    """
    placed, _ = _placed(directory)
    ctx.exit(0 if _show([found for _, found in placed], as_json) else 1)


@nebulastream.command()
@bundle_argument
@click.option(
    "--replace",
    "before",
    type=paths.InputPath(exists=True, file_okay=False),
    metavar="DIR",
    help="What runs in place of these: its queries that are the same go on, others end.",
)
def start(directory: Path, before: Path | None) -> None:
    """Start the queries of DIRECTORY, each where the plan has it.

    Nothing is started when an operator would run elsewhere.
    """
    from nova_nebulastream.bundle import Bundle

    old = None if before is None else Bundle(before)
    new = Bundle(directory)
    if new.names() and (old is None or old.directory.absolute() != directory.absolute()):
        raise NovaError(
            f"{directory}: has been started: `nova nebulastream stop`, or --replace {directory}"
        )
    placed, cli = _placed(directory)
    wrong = [row for _, found in placed for row in found.rows if not row.ok]
    if wrong:
        raise NovaError(
            f"{_told(wrong[0])}: nothing has been started; `nova nebulastream check` lists all"
        )
    kept, ended = new.start(cli, [one for one, _ in placed], old)
    console.say(f"{len(placed) - kept} queries started, {kept} go on, {ended} stopped")


@nebulastream.command()
@bundle_argument
@json_option
@click.pass_context
def verify(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Compare where the queries run that have been started from DIRECTORY with the plan.

    Exit code 1 when an operator is elsewhere, or a query does not run.
    """
    from nova_nebulastream import client

    bundle, cli = _bundle(directory)
    found = client.verification(cli, bundle.read(""))
    ctx.exit(0 if _show([found], as_json) else 1)


@nebulastream.command()
@bundle_argument
def stop(directory: Path) -> None:
    """Stop the queries that have been started from DIRECTORY."""
    from nova_nebulastream import client

    bundle, cli = _bundle(directory)
    started = bundle.read("")
    client.stop(cli, started.queries)
    bundle.forget("")
    console.say(f"{len(started.queries)} queries stopped")


def _bundle(directory: Path) -> tuple[Bundle, Cli]:
    from nova_nebulastream.bundle import Bundle
    from nova_nebulastream.client import Cli
    from nova_nebulastream.home import NesHome

    return Bundle(directory), Cli(NesHome.default())


def _placed(directory: Path) -> tuple[list[tuple[Started, Verification]], Cli]:
    bundle, cli = _bundle(directory)
    with console.progress("placing queries") as progress:
        total = len(bundle.planned.queries)
        return bundle.fitted(cli, lambda done: progress(done, total)), cli


def _told(row: Row) -> str:
    where = row.actual or "no worker"
    verdict = "as planned" if row.ok else f"planned on {row.node}"
    return f"{row.operator} on {where}: {verdict} ({row.status})"


def _show(found: list[Verification], as_json: bool) -> bool:
    ok = all(one.ok for one in found)
    if as_json:
        rows: list[Any] = [row for one in found for row in one.to_plain()["rows"]]
        console.print_json({"ok": ok, "rows": rows})
        return ok
    for one in found:
        for row in one.rows:
            click.echo(_told(row))
        if one.note:
            console.say(one.note)
    return ok
