"""The report as a page: what its template is filled with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova_core.console import number
from nova_core.errors import NovaError
from nova_harness.report.comparison import (
    EQUAL,
    METRICS,
    Metric,
    Ratio,
    Value,
    best,
    ratios,
    relative,
    value,
)
from nova_harness.report.figures import name_of
from nova_harness.report.groups import PERCENTILES, Group, Setting, key_of
from nova_harness.report.run_folder import CellFolder, RunFolder

WHAT: dict[Metric, str] = {
    "mean": "mean latency",
    "p9999": "99.99th percentile of latency",
    "throughput": "throughput",
}
# What a strategy's own description takes for granted.
DESCRIPTIONS = {
    "nova": "Run each join near the point from which its readings and results have the shortest "
    "ways, on hosts with room for it; cut it into pieces where no single host has enough.",
}
# Descriptions longer than this are cut in tables of facts.
MOST_TEXT = 400


@dataclass(frozen=True)
class Note:
    """A sentence on top of the report; ``kind`` is good, bad or plain."""

    kind: str
    text: str


def milliseconds(amount: float) -> str:
    """A latency with about three digits."""
    if math.isinf(amount):
        return "nothing arrived"
    digits = 0 if abs(amount) >= 100 else 1 if abs(amount) >= 10 else 2
    return number(amount, digits)


def times(factor: float) -> str:
    """A ratio with two or three digits."""
    if math.isinf(factor):
        return "∞"
    return number(factor, 0 if factor >= 100 else 1 if factor >= 10 else 2)


def count(amount: float, one: str, many: str = "") -> str:
    """An amount of things."""
    return f"{amount:,.0f} {one if amount == 1 else many or one + 's'}"


def shown(figure: Value) -> str:
    """A latency, marked where it is a bound."""
    if math.isinf(figure.amount):
        return "–"
    return ("≥" if figure.bound else "") + milliseconds(figure.amount)


# --- the top -------------------------------------------------------------------------------------


def tiles(found: Sequence[Ratio], subject: str) -> list[dict[str, str]]:
    """How the subject compares, in one figure per metric."""
    tiles = []
    for metric in METRICS:
        mine = [r for r in found if r.metric == metric]
        if not mine:
            continue
        low, high = (pick(mine, key=lambda r: r.factor) for pick in (min, max))
        span = times(low.factor)
        if times(high.factor) != span:
            span += f"–{times(high.factor)}"
        if all(r.sign == "≥" for r in mine):
            span = f"≥{span}"
        better = sum(r.outcome == "better" for r in mine)
        equal = sum(r.outcome == "equal" for r in mine)
        note = f"than the best other strategy; {subject} is better in {better} of "
        note += count(len(mine), "setting") + (
            f", within {100 * EQUAL:g} % in {equal}" if equal else ""
        )
        unit = "more" if metric == "throughput" else "lower"
        if low.factor < 1:
            unit, note = "as good", note.replace("than", "as", 1) + " (below 1: worse)"
        name = f"{WHAT[metric][0].upper()}{WHAT[metric][1:]}"
        tiles.append({"name": name, "figure": f"{span}×", "unit": unit, "note": note})
    return tiles


def notes(
    runs: Sequence[RunFolder], groups: Sequence[Group], found: Sequence[Ratio], subject: str | None
) -> list[Note]:
    """What a reader has to know before any figure: the bad first."""
    made = [*_unfinished(runs), *_integrity(groups), *_not_best(found, subject)]
    if subject is not None and groups and not found:
        made.append(Note("bad", f"There is nothing to compare {subject} with."))
    made += [*_loads(runs), *_pooled(runs), *_engines(groups)]
    return sorted(made, key=lambda note: ("bad", "good", "plain").index(note.kind))


def _unfinished(runs: Sequence[RunFolder]) -> list[Note]:
    made = []
    for run in runs:
        where = f"{run.name}: " if len(runs) > 1 else ""
        done = sum(cell.done for cell in run.cells)
        planned = max(run.planned or 0, len(run.cells))
        if done < planned:
            text = f"{where}{done} of {count(planned, 'planned cell')} finished."
            failed = [c.verdict.state for c in run.cells if not c.done and c.verdict.verdict]
            if failed:
                text += f" {len(failed)} ended with a verdict: see below."
            made.append(Note("bad", text))
        if run.verdict.state not in ("finished", "unknown"):
            text = f"{where}The run is {run.verdict.state}. {run.verdict.verdict}".strip()
            made.append(Note("bad", text))
    return made


def _integrity(groups: Sequence[Group]) -> list[Note]:
    if not groups:
        return [Note("bad", "No cell was finished, so there are no figures.")]
    made = []
    lost, twice, wrong, cut = (
        sum(getattr(g, name) for g in groups) for name in ("lost", "duplicated", "wrong", "cut_off")
    )
    expected = sum(g.expected for g in groups)
    delivered = f"{count(sum(g.delivered for g in groups), 'result')} compared with the reference"
    if lost or twice or wrong:
        who = _names(g for g in groups if g.lost or g.duplicated or g.wrong)
        text = f"{lost:,} lost, {twice:,} delivered twice and {wrong:,} wrong ({who})."
        made.append(Note("bad", f"{delivered}: {text}"))
    else:
        made.append(Note("good", f"{delivered}: none lost, none delivered twice, none wrong."))
    if cut:
        who = _names(g for g in groups if g.cut_off)
        made.append(
            Note(
                "plain",
                f"{count(cut, 'result')} ({100 * cut / expected:.2g} % of those expected) had not "
                f"arrived when their run was ended, and are in no latency ({who}).",
            )
        )
    misplaced, verified = (sum(getattr(g, n) for g in groups) for n in ("misplaced", "verified"))
    if misplaced:
        who = _names(g for g in groups if g.misplaced)
        made.append(
            Note("bad", f"{count(misplaced, 'operator')} did not run where the plan says ({who}).")
        )
    elif verified:
        text = f"The engine ran every operator where the plan says ({verified:,} looked at)."
        made.append(Note("good", text))
    return made


def _engines(groups: Sequence[Group]) -> list[Note]:
    engines = {group.setting.engine for group in groups}
    made = []
    if len(engines) > 1:
        made.append(
            Note(
                "plain",
                f"{len(engines)} engines ran the plans; strategies are compared on each of them by "
                "itself. Capacities of hosts, and so plans, come from a calibration of each.",
            )
        )
    if "spark" in engines:
        made.append(
            Note(
                "plain",
                "Spark joins in micro-batches: its results come about 0.6 s after their readings "
                "at the least, wherever the join is done, and later the more a micro-batch costs.",
            )
        )
    return made


def _names(groups: Iterable[Group]) -> str:
    return ", ".join(dict.fromkeys(group.strategy for group in groups))


def _not_best(found: Sequence[Ratio], subject: str | None) -> list[Note]:
    if not found or subject is None:
        return []
    worse = [r for r in found if r.outcome == "worse"]
    if not worse:
        return [
            Note(
                "good",
                f"No other strategy beats {subject} by more than {100 * EQUAL:g} % in any of these "
                "figures.",
            )
        ]
    made = []
    for metric in METRICS:
        mine = [r for r in worse if r.metric == metric]
        if not mine:
            continue
        cases = [
            f"{name_of(r.setting, rate=True)}: {_of(r, r.subject)} against "
            f"{_of(r, r.other)} ({r.best_other})"
            for r in mine
        ]
        made.append(
            Note("bad", f"{subject} does not have the best {WHAT[metric]}: {'; '.join(cases)}.")
        )
    return made


def _of(ratio: Ratio, figure: Value) -> str:
    if ratio.metric == "throughput":
        return f"{number(figure.amount, 0)} results/s"
    return "nothing" if math.isinf(figure.amount) else f"{shown(figure)} ms"


def _loads(runs: Sequence[RunFolder]) -> list[Note]:
    """How much a rate asks of hosts, where it was found, and what artificial load leaves them."""
    made = []
    for run in runs:
        if (found := run.load) is not None:
            where = f"{run.name}: " if len(runs) > 1 else ""
            text = (
                f"{where}{number(found.rate, 0)} readings per second and sensor ask of a region's "
                f"join {found.load:.2f} times what the strongest host without sensor and sink "
                f"({found.host}) can take, {number(found.takes, 0)} per second; found by "
                f"{count(len(found.calibrations), 'calibration')} before the first strategy ran."
            )
            made.append(Note("plain", text))
        if any(cell.facts.stress for cell in run.cells):
            where = f"{run.name}: " if len(runs) > 1 else ""
            left = run.calibrated.left
            told = (
                "Strategies placed them as if hosts were calm."
                if left is None
                else f"Load leaves the engine {100 * left:.0f} % of a host's CPU limit, measured "
                "before the first strategy ran; every strategy was told."
            )
            made.append(Note("plain", f"{where}Some runs were under artificial load. {told}"))
    return made


def _pooled(runs: Sequence[RunFolder]) -> list[Note]:
    if len(runs) < 2:
        return []
    machines = {
        str([run.environment.get(k) for k in ("cpu", "cores", "kernel")])
        + str(sorted((h.name, h.cpu or 0) for h in run.hosts))
        for run in runs
    }
    text = f"{len(runs)} runs are taken together: results of the same strategy and setting are one."
    if len(machines) == 1:
        return [Note("plain", text)]
    return [Note("bad", f"{text} They were not run on the same machine or hosts, see below.")]


# --- tables --------------------------------------------------------------------------------------


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
        kind = "best" if own.amount == first[metric][1].amount else ""
        return {"text": text, "kind": kind}

    def ratio(metric: Metric) -> dict[str, str]:
        own = value(group, metric)
        return {"text": "–" if math.isinf(own.amount) else times(relative(own, first[metric][0]))}

    mean = figure("mean")
    if len(group.cell_means) > 1:
        low, high = min(group.cell_means), max(group.cell_means)
        mean["small"] = f"±{milliseconds((high - low) / 2)}"
    cells = [mean, ratio("mean")]
    for name, share in PERCENTILES.items():
        if name == "p9999":
            cells.append(figure("p9999"))
        elif group.latency is None:
            cells.append({"text": "–"})
        else:
            cells.append({"text": shown(Value(group.latency.at(share), group.is_bound(share)))})
    cells.append(ratio("p9999"))
    kept_up = 100 * group.results_per_s / group.expected_per_s
    cells += [figure("throughput"), {"text": f"{kept_up:.0f} %"}, ratio("throughput")]
    cells.append({"text": f"{group.lost:,}", "kind": "bad-text" if group.lost else ""})
    cells.append({"text": f"{group.cut_off:,}"})
    return cells


def table_note(groups: Sequence[Group]) -> str:
    """How many repetitions the table's figures come from."""
    cells = sorted({group.cells for group in groups})
    span = f"{cells[0]}" if len(cells) == 1 else f"{cells[0]} to {cells[-1]}"
    text = f"Each line: {span} {'repetition' if cells[-1] == 1 else 'repetitions'}"
    if cells[-1] > 1:
        text += ", taken together; ± is half of what lies between the repetitions’ means"
    return text + "."


def cell_rows(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """What became of each cell."""
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


def carried_rows(runs: Sequence[RunFolder]) -> list[dict[str, str]]:
    """Cells whose streams came through Kafka: latencies without and with the wait in it."""
    made = []
    for cell in (cell for run in runs for cell in run.cells if cell.done):
        found = cell.summary.kafka
        if found is None:
            continue
        strategy, setting = key_of(cell)
        row = {"strategy": strategy, "setting": name_of(setting, rate=True)}
        for name, told in (("p", found.processing_ms), ("e", found.end_to_end_ms)):
            for percentile in ("p50", "p99"):
                amount = told.get(percentile)
                row[f"{name}_{percentile}"] = "" if amount is None else milliseconds(amount)
        pressure = found.back_pressure
        row["rate"] = "not measured" if pressure is None else f"{pressure.rate:,.1f}"
        row["most"] = "" if pressure is None else f"{pressure.most:,}"
        made.append(row)
    return made


def busy_rows(runs: Sequence[RunFolder], strategies: Sequence[str]) -> list[dict[str, str]]:
    """The busiest operator and the one most held up, by strategy and setting."""
    cells = {key_of(c): c for run in runs for c in run.cells if c.done and c.operators}
    rows = []
    for (strategy, setting), cell in sorted(
        cells.items(), key=lambda item: (item[0][1], strategies.index(item[0][0]))
    ):
        facts = cell.facts
        # Of runs that do not tell: from the middle of the warm-up on.
        whole = 1000 * (facts.counted_s or facts.duration_s + facts.warm_up_s / 2)
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


# --- what it ran on ------------------------------------------------------------------------------


def run_facts(run: RunFolder) -> list[tuple[str, str]]:
    """The experiment, the machine and the hosts of a run."""
    facts = [(name, _text(content)) for name, content in run.experiment.items()]
    if (found := run.load) is not None:
        text = f"{found.rate:g} tuples/s, {found.load:.2f} of {found.takes:g} ({found.host})"
        at = ", ".join(f"{one.get('rate', 0):g}" for one in found.calibrations)
        facts.append(("rate found", f"{text}; calibrated at {at}"))
    facts += [(name, _text(content)) for name, content in run.environment.items()]
    if run.hosts:
        facts.append(("hosts", "; ".join(_host(host) for host in run.hosts)))
    return facts


def _host(host: Any) -> str:
    parts = [host.role] if host.role else []
    if host.cpu is not None:
        parts.append(f"{host.cpu:g} cores")
    if host.memory is not None:
        parts.append(f"{host.memory / 2**20:,.0f} MiB")
    return f"{host.name} ({', '.join(parts)})" if parts else host.name


def _text(content: Any) -> str:
    if isinstance(content, Mapping):
        text = ", ".join(f"{name} {_text(inner)}" for name, inner in content.items())
    elif isinstance(content, (list, tuple)):
        text = ", ".join(_text(inner) for inner in content)
    else:
        text = f"{content:g}" if isinstance(content, float) else str(content)
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " …"


def descriptions(strategies: Sequence[str], runs: Sequence[RunFolder]) -> list[tuple[str, str]]:
    """What each strategy does, in its own words where it is installed."""
    from inspect import getdoc

    from nova_core.strategies.base import create

    names: dict[str, str] = {}
    for run in runs:
        for part in run.experiment.get("strategies", []):
            if isinstance(part, Mapping):
                names[str(part.get("label") or part.get("name"))] = str(part.get("name"))
    made = []
    for label in strategies:
        name = names.get(label, label)
        try:
            doc = DESCRIPTIONS.get(name) or getdoc(type(create(name))) or ""
        except NovaError:
            doc = "(not installed where this report was made)"
        made.append((label, doc.partition("\n")[0]))
    return made


def facts_line(runs: Sequence[RunFolder], groups: Sequence[Group]) -> str:
    """When and how much was run, in a line."""
    cells = [cell for run in runs for cell in run.cells]
    done = sum(cell.done for cell in cells)
    parts = [f"{done} finished {'cell' if done == 1 else 'cells'}"]
    lengths = sorted({cell.facts.duration_s for cell in cells})
    if lengths:
        parts.append("measured for " + " or ".join(f"{length:g} s" for length in lengths) + " each")
    results = sum(group.results for group in groups)
    parts.append(count(results, "result"))
    hosts = max((len(run.hosts) for run in runs), default=0)
    if hosts:
        parts.append(count(hosts, "host"))
    engines = {str(run.experiment["engine"]) for run in runs if "engine" in run.experiment}
    parts += sorted(engines)
    made = sorted(str(run.environment["time"]) for run in runs if run.environment.get("time"))
    if made:
        parts.append(made[0] if len(made) == 1 else f"{made[0]} to {made[-1]}")
    return " · ".join(parts)


__all__ = [
    "Note",
    "Setting",
    "busy_rows",
    "carried_rows",
    "cell_rows",
    "comparison_table",
    "descriptions",
    "facts_line",
    "notes",
    "ratios",
    "run_facts",
    "table_note",
    "tiles",
]
