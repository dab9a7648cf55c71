"""``nova schema``: the published JSON Schemas."""

from __future__ import annotations

import click

from nova_core import console


@click.command(short_help="Print a document's JSON Schema.")
@click.argument(
    "document",
    type=click.Choice(["problem", "plan", "event", "plan-delta", "queries", "query-plan"]),
)
def schema(document: str) -> None:
    """Print a document's JSON Schema: problem, plan, event, plan delta, queries or their plan."""
    from nova_core.model.schema import published

    console.print_json(published(document))
