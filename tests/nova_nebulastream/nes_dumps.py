"""What ``nes-cli dump`` of revision 2e2cb0d0e1 has printed of some queries, in ``dumps``.

``NOVA_NES_HOME=... python nes_dumps.py`` writes these files anew.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from nes_plans import nes_plan
from nes_queries import forward_plan

from nova_core.model import Plan
from nova_engines.flow import Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.nodes import addresses
from nova_nebulastream import topologies
from nova_nebulastream.queries import Query, queries

DUMPS = Path(__file__).with_name("dumps")
MATCH = Match(1000, 10, 2)


def moved(plan: Plan) -> Plan:
    """The same plan, with every join on another node."""
    node = np.full(len(plan.instances), 6)
    return replace(plan, instances=replace(plan.instances, node=node))


def plans(scratch: Path) -> dict[str, Plan]:
    """What the dumps are of: cut joins, the same elsewhere, relays, a query with columns."""
    return {
        "cut": nes_plan(1),
        "moved": moved(nes_plan(1)),
        "relayed": nes_plan(4, routes=True),
        "columns": forward_plan(34, scratch),
    }


def dumped(plan: Plan) -> tuple[list[Query], dict[str, str]]:
    """The queries of a plan, and the addresses of nodes."""
    found = queries(flow_of(plan, None if plan.problem.queries else MATCH))
    return found, addresses(plan.problem, [str(one) for one in plan.problem.nodes.ids])


def path(name: str, number: int) -> Path:
    """Of the dump of a plan's query."""
    return DUMPS / f"{name}-{number}.txt"


def main() -> None:
    """Write all dumps."""
    from nova_nebulastream.client import Cli
    from nova_nebulastream.home import NesHome

    cli = Cli(NesHome.default())
    DUMPS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, plan in plans(Path(scratch)).items():
            found, hosts = dumped(plan)
            for number, query in enumerate(found):

                def file(one: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
                    return "File", {"file_path": f"/tmp/{one.stream}.csv"}, {}

                document = topologies.topology(query, hosts, file, "/tmp/results.csv")
                placement = topologies.placement([query], hosts)
                text = cli.dump(topologies.text(document), placement)
                # The drawing ends lines with spaces.
                lines = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
                path(name, number).write_text(lines, "utf-8")


if __name__ == "__main__":
    main()
