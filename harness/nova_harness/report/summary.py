"""The top of the report: the main figures, and notes on their validity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nova_core.console import number
from nova_harness.report.comparison import EQUAL, METRICS, Metric, Ratio, Value
from nova_harness.report.figures import name_of
from nova_harness.report.groups import Group, Setting, key_of
from nova_harness.report.recovery import Course
from nova_harness.report.wording import count, percent, shown, times
from nova_harness.results.run_folder import RunFolder

WHAT: dict[Metric, str] = {
    "mean": "mean latency",
    "p9999": "99.99th percentile of latency",
    "throughput": "throughput",
}


# An operator is held back from this share of the time on; a host is full from this share of its
# CPU limit on.
HELD_BACK = 0.1
FULL = 0.85


@dataclass(frozen=True)
class Note:
    """A sentence on top of the report; ``kind`` is good, bad or plain."""

    kind: str
    text: str


def tiles(
    ratios: Sequence[Ratio], subject: str | None, courses: Sequence[Course]
) -> list[dict[str, str]]:
    """The main figures: first how soon results come again after a failure, then the ratios."""
    return [*_recovery_tile(courses), *_ratio_tiles(ratios, subject or "")]


def _recovery_tile(courses: Sequence[Course]) -> list[dict[str, str]]:
    """The longest time without results under the controller, beside that without it."""
    sides: dict[bool, list[tuple[float, str, str]]] = {True: [], False: []}
    for course in courses:
        facts = course.cell.facts
        if course.recoveries:
            longest = max(course.recoveries, key=lambda one: one.results_s or 0.0)
            side = sides[facts.scheduled_by == "controller"]
            side.append((longest.results_s or 0.0, facts.strategy, longest.text))
    if not (sides[True] and sides[False]):
        return []
    (mine, controlled, _), (theirs, other, what) = min(sides[True]), min(sides[False])
    if not theirs or math.isinf(mine):
        return []
    against = "not in time" if math.isinf(theirs) else f"{number(theirs, 1)} s"
    return [
        {
            "name": "Without results after a failure",
            "figure": f"{number(mine, 1)} s",
            "unit": f"against {against}",
            "note": f"until every join delivered again, with Nova’s controller ({controlled}) and "
            f"without it ({other}): {what}",
            "link": "hosts",
        }
    ]


def _ratio_tiles(ratios: Sequence[Ratio], subject: str) -> list[dict[str, str]]:
    """How the subject compares, in one figure per metric."""
    tiles = []
    for metric in METRICS:
        mine = [r for r in ratios if r.metric == metric]
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
        own, theirs = (percent(*shares) for shares in zip(*(r.kept_up for r in mine), strict=True))
        note += f". Kept up with the sensors: {subject} {own}, the other {theirs}"
        name = f"{WHAT[metric][0].upper()}{WHAT[metric][1:]}"
        tiles.append(
            {"name": name, "figure": f"{span}×", "unit": unit, "note": note, "link": "table"}
        )
    return tiles


def notes(
    runs: Sequence[RunFolder], groups: Sequence[Group], ratios: Sequence[Ratio], subject: str | None
) -> list[Note]:
    """Notes that a reader needs before any figure; bad ones first."""
    remarks = [*_unfinished(runs), *_integrity(groups), *_aside(runs), *_not_best(ratios, subject)]
    if subject is not None and groups and not ratios:
        remarks.append(Note("bad", f"There is nothing to compare {subject} with."))
    remarks += [*_held_back(runs), *_loads(runs), *_pooled(runs), *_engines(groups)]
    return sorted(remarks, key=lambda note: ("bad", "good", "plain").index(note.kind))


def _unfinished(runs: Sequence[RunFolder]) -> list[Note]:
    remarks = []
    for run in runs:
        where = f"{run.name}: " if len(runs) > 1 else ""
        finished = sum(cell.done for cell in run.cells)
        planned = max(run.planned or 0, len(run.cells))
        if finished < planned:
            text = f"{where}{finished} of {count(planned, 'planned cell')} finished."
            failed = [c.verdict.state for c in run.cells if not c.done and c.verdict.verdict]
            if failed:
                text += f" {len(failed)} ended with a verdict: see below."
            remarks.append(Note("bad", text))
        if run.state.state not in ("finished", "unknown"):
            text = f"{where}The run is {run.state.state}. {run.state.verdict}".strip()
            remarks.append(Note("bad", text))
    return remarks


def _aside(runs: Sequence[RunFolder]) -> list[Note]:
    """Notes on dead letters, sinks that restarted, and results not written in full."""
    cells = [cell for run in runs for cell in run.cells if cell.done]
    remarks = []
    for field, what, meaning in (
        (
            "dead_letters",
            "dead letter",
            "came for sources and were no tuples of theirs",
        ),
        ("restarts", "restart", "of a sink by its engine, which may deliver results again"),
        ("truncated_bytes", "byte", "of results that were not written in full"),
    ):
        counted = {cell.path.name: getattr(cell.facts, field) for cell in cells}
        if total := sum(counted.values()):
            who = ", ".join(name for name, number in counted.items() if number)
            remarks.append(Note("bad", f"{count(total, what)} {meaning} ({who})."))
    return remarks


def _integrity(groups: Sequence[Group]) -> list[Note]:
    if not groups:
        return [Note("bad", "No cell was finished, so there are no figures.")]
    remarks = []
    lost, twice, wrong, cut = (
        sum(getattr(g, name) for g in groups) for name in ("lost", "duplicated", "wrong", "cut_off")
    )
    expected = sum(g.expected for g in groups)
    delivered = f"{count(sum(g.delivered for g in groups), 'result')} compared with the reference"
    if lost or twice or wrong:
        who = _names(g for g in groups if g.lost or g.duplicated or g.wrong)
        text = f"{lost:,} lost, {twice:,} delivered twice and {wrong:,} wrong ({who})."
        remarks.append(Note("bad", f"{delivered}: {text}"))
    else:
        remarks.append(Note("good", f"{delivered}: none lost, none delivered twice, none wrong."))
    if cut:
        who = _names(g for g in groups if g.cut_off)
        remarks.append(
            Note(
                "plain",
                f"{count(cut, 'result')} ({100 * cut / expected:.2g} % of those expected) had not "
                f"arrived when their run was ended, and are in no latency ({who}).",
            )
        )
    misplaced, verified = (sum(getattr(g, n) for g in groups) for n in ("misplaced", "verified"))
    if misplaced:
        who = _names(g for g in groups if g.misplaced)
        remarks.append(
            Note("bad", f"{count(misplaced, 'operator')} did not run where the plan says ({who}).")
        )
    elif verified:
        text = f"The engine ran every operator where the plan says ({verified:,} checked)."
        remarks.append(Note("good", text))
    return remarks


def _engines(groups: Sequence[Group]) -> list[Note]:
    engines = {group.setting.engine for group in groups}
    remarks = []
    if len(engines) > 1:
        remarks.append(
            Note(
                "plain",
                f"{len(engines)} engines ran the plans; strategies are compared on each of them by "
                "itself. Capacities of hosts, and so plans, come from a calibration of each.",
            )
        )
    if "spark" in engines:
        remarks.append(
            Note(
                "plain",
                "Spark ends a batch every 5 s and keeps its state: readings that are due meanwhile "
                "wait, wherever they are joined.",
            )
        )
    return remarks


def _names(groups: Iterable[Group]) -> str:
    return ", ".join(dict.fromkeys(group.strategy for group in groups))


def _not_best(ratios: Sequence[Ratio], subject: str | None) -> list[Note]:
    if not ratios or subject is None:
        return []
    worse = [r for r in ratios if r.outcome == "worse"]
    if not worse:
        return [
            Note(
                "good",
                f"No other strategy beats {subject} by more than {100 * EQUAL:g} % in any of these "
                "figures.",
            )
        ]
    remarks = []
    for metric in METRICS:
        mine = [r for r in worse if r.metric == metric]
        if not mine:
            continue
        cases = [
            f"{name_of(r.setting, rate=True)}: {_of(r, r.subject)} against "
            f"{_of(r, r.other)} ({r.best_other}); kept up: {percent(r.kept_up[0])} and "
            f"{percent(r.kept_up[1])}"
            for r in mine
        ]
        remarks.append(
            Note("bad", f"{subject} does not have the best {WHAT[metric]}: {'; '.join(cases)}.")
        )
    return remarks


def _of(ratio: Ratio, figure: Value) -> str:
    if ratio.metric == "throughput":
        return f"{number(figure.amount, 0)} results/s"
    return "nothing" if math.isinf(figure.amount) else f"{shown(figure)} ms"


def _held_back(runs: Sequence[RunFolder]) -> list[Note]:
    """Runs whose operators waited for others although no host was short of CPU."""
    cases = []
    for cell in (cell for run in runs for cell in run.cells if cell.done and cell.operators):
        held = max(cell.operators, key=lambda o: o.back_pressured_ms or 0)
        share = (held.back_pressured_ms or 0) / (1000 * cell.facts.counted)
        used = {
            name: use.cpu_cores_mean / use.limit_cores
            for name, use in cell.summary.hosts.items()
            if use.cpu_cores_mean is not None and use.limit_cores
        }
        if share >= HELD_BACK and used and max(used.values()) < FULL:
            strategy, setting = key_of(cell)
            busiest = max(used, key=used.__getitem__)
            cases.append(
                f"{strategy}, {name_of(setting, rate=True)}: {held.name} on {held.node} waited "
                f"{min(100, 100 * share):.0f} % of the time, the busiest host ({busiest}) used "
                f"{100 * used[busiest]:.0f} % of its CPU limit"
            )
    if not cases:
        return []
    text = (
        "Operators were held back while every host had CPU to spare, so that links or the engine's "
        f"buffers decided, and not the placement's load: {'; '.join(cases)}."
    )
    return [Note("bad", text)]


def _loads(runs: Sequence[RunFolder]) -> list[Note]:
    """The load of a rate that was searched for, and the CPU that artificial load leaves."""
    remarks = []
    for run in runs:
        if (search := run.load) is not None:
            where = f"{run.name}: " if len(runs) > 1 else ""
            text = (
                f"{where}{number(search.rate, 0)} readings per second and sensor ask of a region's "
                f"join {search.load:.2f} times what the strongest host without sensor and sink "
                f"({search.host}) can take, {number(search.takes, 0)} per second; found by "
                f"{count(len(search.calibrations), 'calibration')} before the first strategy ran."
            )
            if not search.settled:
                text += " The search has not settled, so the load may be another one."
            remarks.append(Note("plain", text))
        if any(cell.facts.stress for cell in run.cells):
            where = f"{run.name}: " if len(runs) > 1 else ""
            left = run.calibrations.left
            meaning = (
                "Strategies placed operators as if hosts were calm."
                if left is None
                else f"Load leaves the engine {100 * left:.0f} % of a host's CPU limit, measured "
                "before the first strategy ran; every strategy got this figure."
            )
            remarks.append(Note("plain", f"{where}Some runs were under artificial load. {meaning}"))
    return remarks


def _pooled(runs: Sequence[RunFolder]) -> list[Note]:
    """Whether runs with one setting, which are compared, are of one machine and the same hosts."""
    if len(runs) < 2:
        return []
    text = f"{len(runs)} runs are taken together: results of the same strategy and setting are one."
    places: dict[Setting, dict[str, str]] = {}
    for run in runs:
        machine = {name: run.environment.get(name) for name in ("cpu", "cores", "kernel")}
        hosts = sorted((host.name, host.cpu or 0, host.memory or 0) for host in run.hosts)
        for cell in run.cells:
            if cell.done:
                places.setdefault(key_of(cell)[1], {})[f"{machine} {hosts}"] = str(run.path)
    for setting, found in places.items():
        if len(found) > 1:
            where = f"{name_of(setting, rate=True)}: {', '.join(found.values())}"
            text += f" They were not run on the same machine or hosts ({where}), see below."
            return [Note("bad", text)]
    return [Note("plain", text)]
