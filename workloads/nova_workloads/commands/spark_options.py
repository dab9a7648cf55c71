"""Options that all commands running Spark have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nova_core import paths

Command = TypeVar("Command", bound=Callable[..., Any])


def spark_options(command: Command) -> Command:
    """Add ``--master``, ``--memory``, ``--spark-conf`` and ``--spark-log``."""
    for option in (
        click.option(
            "--spark-log",
            type=paths.OutputPath(dir_okay=False),
            help="Write what Spark says to this file; otherwise only its errors are shown.",
        ),
        click.option(
            "--spark-conf",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any setting of Spark's; may be repeated.",
        ),
        click.option(
            "--memory",
            metavar="SIZE",
            help="Heap of Spark's driver and executors, e.g. 2g. [default: a quarter of the "
            "machine's memory, 1 to 4 GiB]",
        ),
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            help="Where Spark runs: local[N], spark://HOST:PORT, yarn or k8s://HOST.",
        ),
    ):
        command = option(command)
    return command
