"""Options that commands running Spark have in common."""

from __future__ import annotations

import click

from nova_core import paths
from nova_core.commands import shared

bad_file_option = click.option(
    "--on-bad-file",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    show_default=True,
    help="A file that is not what its name claims is left out, or ends the run.",
)

# The command gets them as ``spark``, for `nova_workloads.spark.shown_session`.
spark_options = shared.together(
    "spark",
    dict,
    click.option(
        "--master",
        default="local[*]",
        show_default=True,
        help="Where Spark runs: local[N], spark://HOST:PORT, yarn or k8s://HOST.",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        help="Heap of Spark's driver and executors, e.g. 2g. [default: a quarter of the "
        "machine's memory, 1 to 4 GiB]",
    ),
    click.option(
        "--spark-conf",
        multiple=True,
        metavar="NAME=VALUE",
        help="Any setting of Spark's; may be repeated.",
    ),
    click.option(
        "--spark-log",
        type=paths.OutputPath(dir_okay=False),
        help="Write what Spark says to this file; otherwise only its errors are shown.",
    ),
)
