"""An experiment of a filter, an aggregate and a three-way join; its cells checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nova_harness.report import make_report, write_report
from nova_harness.results.run_folder import CellFolder

QUERIES = """
streams:
  - {id: heat, columns: {place: text, value: float}, key: place}
  - {id: strain, columns: {place: text, value: float}, key: place}
  - {id: flux, columns: {place: text, value: float}, key: place}
sources:
  - {id: heat-a, stream: heat, key: a}
  - {id: strain-a, stream: strain, key: a}
  - {id: flux-a, stream: flux, key: a}
queries:
  - id: worn
    operators:
      - {id: hot, kind: filter, input: heat, where: value > 20}
      - {id: level, kind: aggregate, input: strain, group_by: [strain.place], groups: 1,
         window: 0.5, compute: {most: max(value)}}
      - {id: two, kind: join, inputs: [hot, level], "on": heat.place = level.place, window: 0.5}
      - {id: three, kind: join, inputs: [two, flux], window: 0.5,
         "on": heat.place = flux.place AND abs(heat.value - flux.value) <= 5}
"""

WORKLOAD: dict[str, Any] = {"kind": "queries", "file": "q.yaml", "readings": "r"}


def write_queries(directory: Path) -> None:
    """The queries, and readings of 4 s."""
    (directory / "q.yaml").write_text(QUERIES)
    (directory / "r").mkdir()
    for stream in ("heat", "strain", "flux"):
        values = [(k * 7 + len(stream) * 11) % 40 for k in range(80)]
        rows = [f"{10**12 + 50 * k},a,{value}" for k, value in enumerate(values)]
        lines = ["time,place,value,source", *(f"{row},{stream}-a" for row in rows)]
        (directory / "r" / f"{stream}.csv").write_text("\n".join(lines) + "\n")


def check_queries(cells: Sequence[CellFolder], run: Path) -> None:
    """Every row is right, every operator as planned, and there is a report."""
    assert len(cells) == 2
    for cell in cells:
        assert cell.verification.ok, cell.verification
        assert cell.check.ok and cell.check.finished, cell.check
        assert cell.check.expected == cell.check.delivered > 100
        assert (cell.facts.window_ms, cell.facts.rate) == (500, 20.2532)
        assert (cell.summary.latency_ms.p50 or 0) > 0 and cell.summary.results > 0
    text = write_report(make_report([run]), run / "report.html")[0].read_text()
    assert "3 operators in 3 pieces on" in text
