"""``nova serve``: the optimizer as a service for engines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least
from nova_core.service.settings import MIB, Settings

TOKEN = "NOVA_TOKEN"


def _limits(max_body: int, body_memory: int, job_seconds: float, idle: float) -> dict[str, Any]:
    """Fields of `Settings`, in bytes and seconds."""
    return {
        "limit": max_body * MIB,
        "body_memory": body_memory * MIB,
        "job_seconds": job_seconds,
        "idle": 60 * idle or None,
    }


limit_options = shared.together(
    "limits",
    _limits,
    click.option(
        "--max-body",
        type=at_least(1),
        default=Settings.limit // MIB,
        show_default=True,
        metavar="MIB",
        help="The largest body a request may have.",
    ),
    click.option(
        "--body-memory",
        type=at_least(256),
        default=Settings.body_memory // MIB,
        show_default=True,
        metavar="MIB",
        help="Memory that reading a large body may take.",
    ),
    click.option(
        "--job-seconds",
        type=NumberRange(min=0, min_open=True),
        default=Settings.job_seconds,
        show_default=True,
        metavar="SECONDS",
        help="Time that reading a large body, or placing, may take.",
    ),
    click.option(
        "--idle",
        type=NumberRange(min=0),
        default=(Settings.idle or 0) / 60,
        show_default=True,
        metavar="MINUTES",
        help="A placement that nobody uses so long leaves the memory until it is used; 0: never.",
    ),
)


@click.command(short_help="Serve placements to engines over HTTP.")
@click.argument("directory", type=paths.OutputPath(file_okay=False))
@click.option(
    "--host", default=Settings.host, show_default=True, help="Address to listen on; this machine's."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=Settings.port,
    show_default=True,
    help="0 for any that is free.",
)
@click.option(
    "--token-file",
    type=paths.INPUT,
    help=f"File with the token clients must present; else ${TOKEN}, else none.",
)
@click.option(
    "--jobs",
    type=paths.INPUT,
    metavar="FILE",
    help="Clients, with the token, may also start, stop, pause and watch the jobs of this file.",
)
@limit_options
@shared.sync_option
@shared.json_option
def serve(
    directory: Path,
    host: str,
    port: int,
    token_file: Path | None,
    jobs: Path | None,
    limits: dict[str, Any],
    sync: bool,
    as_json: bool,
) -> None:
    """Serve placements to engines over HTTP until SIGTERM or Ctrl-C.

    What is uploaded and what happens is kept in DIRECTORY, and is there again at the next start.
    GET /openapi.json describes the operations.
    """
    token = _token(token_file)
    if jobs is not None and token is None:
        raise NovaError(
            f"--jobs: every client could start jobs as this user; give --token-file or {TOKEN}"
        )
    from nova_core.service.endpoints import load
    from nova_core.service.server import serve

    others = [] if jobs is None else [load("jobs")(jobs, directory)]

    def ready(url: str) -> None:
        if as_json:
            click.echo(f'{{"url": "{url}", "process": {os.getpid()}}}')
        else:
            console.say(f"{directory}: serving at {url}; Ctrl-C ends it")

    settings = Settings(
        directory=directory,
        host=host,
        port=port,
        token=token,
        sync=sync,
        **limits,
    )
    with shared.working():
        serve(settings, ready, others)


def _token(file: Path | None) -> str | None:
    if file is None:
        token, where = os.environ.get(TOKEN), f"${TOKEN}"
        if token is None:
            return None
    else:
        where = str(file)
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise NovaError(f"{where}: cannot be read: {reason}") from None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise NovaError(f"{where}: holds no token: one word of ASCII characters is expected")
    return token
