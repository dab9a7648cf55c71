"""The group ``nova workload``."""

from __future__ import annotations

import click

from nova_core.lazy_commands import LazyCommands

# In the order of a project's life.
NAMES = ("prepare", "latency", "build", "debs", "replay", "reference")


@click.group(
    cls=LazyCommands, places={name: f"nova_workloads.commands.{name}:{name}" for name in NAMES}
)
def workload() -> None:
    """Turn sensor archives and latency measurements into problems, and replay the streams."""
