"""The report's tables: strategies side by side, and the state of each cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nova_core.console import number
from nova_harness.report.comparison import METRICS, Metric, Value, best, relative, value
from nova_harness.report.figures import name_of
from nova_harness.report.groups import PERCENTILES, Group, key_of
from nova_harness.report.recovery import Course
from nova_harness.report.wording import milliseconds, percent, shown, times
from nova_harness.results.run_folder import CellFolder, RunFolder

# A strategy that delivers less of what is due in time is behind: its latency would go on growing.
KEPT_UP = 0.98


def comparison_table(
    groups: Sequence[Group], strategies: Sequence[str], subject: str | None
) -> list[dict[str, Any]]:
    """Strategies side by side, a block per setting."""
    rates = len({group.setting.rate for group in groups}) > 1
    blocks = []
    for setting in sorted({group.setting for group in groups}):
        here = {group.strategy: group for group in groups if group.setting == setting}
        others = [group for name, group in here.items() if name != subject] or list(here.values())
        first: dict[Metric, tuple[Value, Value]] = {}
        for metric in METRICS:
            reference, leader = best(others, metric), best(here.values(), metric)
            assert reference is not None and leader is not None
            first[metric] = value(reference, metric), value(leader, metric)
        rows = [
            {"name": name, "subject": name == subject, "cells": _cells(here[name], first)}
            for name in strategies
            if name in here
        ]
        blocks.append({"name": name_of(setting, rate=rates), "rows": rows})
    return blocks


def _cells(group: Group, first: Mapping[Metric, tuple[Value, Value]]) -> list[dict[str, str]]:
    def figure(metric: Metric) -> dict[str, str]:
        own = value(group, metric)
        text = number(own.amount, 0) if metric == "throughput" else shown(own)
        kind = "best" if own.counted == first[metric][1].counted else ""
        return {"text": text, "kind": kind}

    def ratio(metric: Metric) -> dict[str, str]:
        own = value(group, metric)
        return {"text": "–" if math.isinf(own.amount) else times(relative(own, first[metric][0]))}

    behind = group.kept_up < KEPT_UP
    kept_up = {"text": percent(group.kept_up), "kind": "bad-text" if behind else ""}
    mean = figure("mean")
    if len(group.cell_means) > 1:
        low, high = min(group.cell_means), max(group.cell_means)
        mean["small"] = f"±{milliseconds((high - low) / 2)}"
    cells = [kept_up, mean, ratio("mean")]
    for name, share in PERCENTILES.items():
        if name == "p9999":
            cells.append(figure("p9999"))
        elif group.latency is None:
            cells.append({"text": "–"})
        else:
            cells.append({"text": shown(Value(group.latency.at(share), group.is_bound(share)))})
    cells.append(ratio("p9999"))
    cells += [figure("throughput"), ratio("throughput")]
    cells.append({"text": f"{group.lost:,}", "kind": "bad-text" if group.lost else ""})
    cells.append({"text": f"{group.cut_off:,}"})
    return cells


def table_note(groups: Sequence[Group]) -> str:
    """How many repetitions the table's figures come from."""
    cells = sorted({group.cells for group in groups})
    span = f"{cells[0]}" if len(cells) == 1 else f"{cells[0]} to {cells[-1]}"
    text = f"Each line: {span} {'repetition' if cells[-1] == 1 else 'repetitions'}"
    if cells[-1] > 1:
        text += ", pooled; ± is half the range of the repetitions’ means"
    return text + "."


def cell_rows(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """State and checks of each cell."""
    cells = [cell for run in runs for cell in run.cells]
    order = sorted(cells, key=lambda c: (key_of(c)[1], key_of(c)[0], c.facts.repetition))
    return [_cell_row(cell) for cell in order]


def _cell_row(cell: CellFolder) -> dict[str, Any]:
    row: dict[str, Any] = {
        "strategy": cell.facts.strategy,
        "repetition": f"#{cell.facts.repetition}",
        "setting": name_of(key_of(cell)[1], rate=True),
        "done": cell.done,
    }
    if not cell.done:
        verdict = cell.verdict
        return row | {"state": verdict.state + (f": {verdict.verdict}" if verdict.verdict else "")}
    check, verification = cell.check, cell.verification
    right = sum(r.actual == r.node for r in verification.rows)
    counts = [
        {"text": f"{getattr(check, name):,}", "bad": bad and getattr(check, name) > 0}
        for name, bad in (
            ("expected", False),
            ("delivered", False),
            ("lost", True),
            ("duplicated", True),
            ("wrong", True),
            ("cut_off", False),
        )
    ]
    placed = f"{right} of {len(verification.rows)}"
    return row | {"counts": counts, "placed": placed, "misplaced": not verification.ok}


def recovery_rows(courses: Sequence[Course]) -> list[dict[str, Any]]:
    """Recovery from each disturbance under each strategy, and checks of the results."""

    def seconds(amount: float | None, never: str = "–") -> str:
        if amount is None:
            return never
        return "not in time" if math.isinf(amount) else number(amount, 1)

    def latency(amount: float) -> str:
        return "–" if math.isnan(amount) else milliseconds(amount)

    rows = []
    for course in courses:
        check = course.cell.check
        rows.append(
            {
                "name": course.cell.facts.strategy,
                "counts": [
                    {"text": f"{amount:,}", "kind": "bad-text" if bad and amount else ""}
                    for amount, bad in (
                        (check.lost + check.cut_off, True),
                        (check.duplicated, True),
                        (check.wrong, True),
                        (course.late, False),
                    )
                ],
                "before": [latency(one) for one in course.before_ms],
                "settled": [latency(one) for one in course.settled_ms],
                "disturbances": [
                    {
                        "number": number_,
                        "text": one.text,
                        "figures": [
                            seconds(one.noticed_s),
                            seconds(one.results_s),
                            seconds(one.normal_s),
                            latency(one.worst_ms),
                        ],
                    }
                    for number_, one in enumerate(course.recoveries, 1)
                ],
                "log": [
                    {"at": f"{at:.1f}", "kind": event.kind, "text": event.text}
                    for at, event in course.events
                ],
            }
        )
    return rows


def carried_rows(runs: Sequence[RunFolder]) -> list[dict[str, str]]:
    """Cells whose streams came through Kafka: latencies without and with the wait in the broker."""
    rows = []
    for cell in (cell for run in runs for cell in run.cells if cell.done):
        kafka = cell.summary.kafka
        if kafka is None:
            continue
        strategy, setting = key_of(cell)
        row = {"strategy": strategy, "setting": name_of(setting, rate=True)}
        for name, latency in (("p", kafka.processing_ms), ("e", kafka.end_to_end_ms)):
            for percentile in ("p50", "p99"):
                amount = getattr(latency, percentile)
                row[f"{name}_{percentile}"] = "" if amount is None else milliseconds(amount)
        pressure = kafka.back_pressure
        row["rate"] = "not measured" if pressure is None else f"{pressure.rate:,.1f}"
        row["most"] = "" if pressure is None else f"{pressure.most:,}"
        rows.append(row)
    return rows


def busy_rows(runs: Sequence[RunFolder], strategies: Sequence[str]) -> list[dict[str, str]]:
    """The busiest and the most back-pressured operator, by strategy and setting."""
    cells = {key_of(c): c for run in runs for c in run.cells if c.done and c.operators}
    rows = []
    for (strategy, setting), cell in sorted(
        cells.items(), key=lambda item: (item[0][1], strategies.index(item[0][0]))
    ):
        whole = 1000 * cell.facts.counted
        busiest = max(cell.operators, key=lambda o: o.busy_ms or 0)
        held = max(cell.operators, key=lambda o: o.back_pressured_ms or 0)
        rows.append(
            {
                "strategy": strategy,
                "setting": name_of(setting, rate=True),
                "busiest": f"{busiest.name} on {busiest.node}",
                "busy": f"{min(100, 100 * (busiest.busy_ms or 0) / whole):.0f} %",
                "held": f"{held.name} on {held.node}" if held.back_pressured_ms else "none",
                "waiting": f"{min(100, 100 * (held.back_pressured_ms or 0) / whole):.0f} %",
            }
        )
    return rows
