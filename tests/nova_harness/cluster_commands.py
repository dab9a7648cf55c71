"""``nova cluster`` as tests use it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from nova_core.io.files import read_problem, write_plan
from nova_core.strategies.base import place
from nova_harness.commands.cluster import cluster

START_MS = 1_700_000_000_000
SQL = """
SELECT h.place, count(*) AS n, avg(h.value) AS mean
FROM heat h JOIN strain s ON h.place = s.place AND abs(h.value - s.value) <= 20
WHERE h.value > 10 GROUP BY h.place WINDOW TUMBLE(500 ms)
"""


def ask(engine: str, inventory: Path, *arguments: str, code: int = 0) -> Any:
    """What a command answers, which ends with that code; its error is raised."""
    command = [*arguments, "-e", engine, "-i", str(inventory), "--json"]
    done = CliRunner().invoke(cluster, command)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def query_plan(directory: Path, seconds: int = 4, rate: int = 20) -> list[str]:
    """Files of a query over columns of four sources, their readings, and a plan of it.

    Returns:
        Arguments of ``nova cluster deploy``.
    """
    draw = random.Random(5)
    keys, homes = ("north", "south"), {"heat": "left", "strain": "right"}
    sources = [
        {"id": f"{stream}-{key}", "node": node, "stream": stream, "rate": rate, "key": key}
        for stream, node in homes.items()
        for key in keys
    ]
    columns = {"place": "text", "value": "float"}
    positions = {"hub": [0, 0], "left": [-9, 0], "right": [9, 0], "between": [0, 5]}
    document = {
        "nova": 1,
        "name": "small",
        "nodes": [
            {"id": node, "position": at, "capacity": 10_000, "worker": node == "between"}
            for node, at in positions.items()
        ],
        "streams": [{"id": stream, "columns": columns, "key": "place"} for stream in homes],
        "sources": sources,
        "queries": [{"id": "hot", "sink": "hub", "sql": SQL}],
    }
    readings = directory / "readings"
    readings.mkdir()
    for one in sources:
        rows = [
            f"{START_MS + round((i + 0.5) * 1000 / rate)},{one['key']},{draw.randrange(400) / 8}"
            for i in range(seconds * rate)
        ]
        (readings / f"{one['id']}.csv").write_text("\n".join(["time,place,value", *rows]) + "\n")
    problem, plan = directory / "queries.yaml", directory / "queries.json"
    problem.write_text(yaml.safe_dump(document))
    write_plan(place(read_problem(problem), "nova"), plan)
    return [str(plan), "-p", str(problem), "--readings", str(readings)]
