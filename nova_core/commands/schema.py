"""``nova schema``: the JSON Schemas of the documents."""

from __future__ import annotations

import click

from nova_core import console
from nova_core.schemas import NAMES


@click.command(short_help="Print a document's JSON Schema.")
@click.argument("document", type=click.Choice(NAMES))
def schema(document: str) -> None:
    """Print a document's JSON Schema: problem, plan, event or plan delta."""
    from nova_core.schemas import schema_of

    console.print_json(schema_of(document))
