"""``nova cluster`` as tests use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from nova_harness.commands.cluster import cluster


def ask(engine: str, inventory: Path, *arguments: str, code: int = 0) -> Any:
    """What a command answers, which ends with that code; its error is raised."""
    command = [*arguments, "-e", engine, "-i", str(inventory), "--json"]
    done = CliRunner().invoke(cluster, command)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)
