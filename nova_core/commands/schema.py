"""``nova schema``: the published JSON Schemas."""

from __future__ import annotations

import click

from nova_core import console


@click.command(short_help="Print a document's JSON Schema.")
@click.argument("document", type=click.Choice(["problem", "plan", "event", "plan-delta"]))
def schema(document: str) -> None:
    """Print the JSON Schema of a document: problem, plan, event or plan delta."""
    from nova_core.model.schema import published

    console.print_json(published(document))
