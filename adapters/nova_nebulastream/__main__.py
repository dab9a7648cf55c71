"""``python -m nova_nebulastream deployment.json``: submit a plan to 0.x, and verify it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from nova_core import console, paths
from nova_core.errors import NovaError
from nova_engines.documents import read


@click.command()
@click.argument("deployment", type=paths.INPUT)
@click.option("--rest", help="URL of the coordinator's REST interface [default: the file's].")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds each query may take.")
@click.option("--json", "as_json", is_flag=True, help="Write the answer as JSON to stdout.")
def main(deployment: Path, rest: str | None, timeout: float, as_json: bool) -> None:
    """Submit what DEPLOYMENT holds, and compare where it runs with the plan."""
    from nova_nebulastream.client import Coordinator, deploy
    from nova_nebulastream.legacy import Deployment

    requested = read(deployment, Deployment)
    placed = deploy(Coordinator(rest or requested.rest), requested, timeout, console.say)
    ok = all(one.ok for one in placed)
    if as_json:
        console.print_json({"ok": ok, "queries": [one.to_plain() for one in placed]})
    for one in () if as_json else placed:
        for row in one.rows:
            planned, actual = (", ".join(map(str, w)) or "-" for w in (row.planned, row.actual))
            verdict = "as planned" if row.ok else f"planned on {planned}"
            click.echo(f"{row.instance}: {row.operator} on {actual}: {verdict}")
    if not ok:
        sys.exit(1)


def run() -> int:
    """The command, with errors for people; the exit code."""
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except NovaError as problem:
        console.fail(str(problem))
        return problem.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run())
