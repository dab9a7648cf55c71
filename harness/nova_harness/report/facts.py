"""Facts of runs: experiments, machines, hosts and strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova_core.errors import NovaError
from nova_harness.report.groups import Group
from nova_harness.report.wording import count
from nova_harness.results.run_folder import RunFolder

# Used in place of a strategy's docstring that assumes too much.
DESCRIPTIONS = {
    "nova": "Run each join near the point from which its readings and results have the shortest "
    "ways, on hosts with room for it; cut it into pieces where no single host has enough.",
}
# Who decides where joins run, where it is not the plan from beginning to end.
SCHEDULED = {
    "controller": "Begin with the plan of {name}; then Nova’s controller watches the hosts and "
    "moves joins while they run, as when a host fails.",
    "engine": "The engine’s own scheduler decides where joins run; only sensors and sinks are "
    "where {name} has them.",
}
# Descriptions longer than this are cut in tables of facts.
MOST_TEXT = 400


def run_facts(run: RunFolder) -> list[tuple[str, str]]:
    """The experiment, the machine and the hosts of a run."""
    facts = [(name, _text(content)) for name, content in run.experiment.items()]
    if (search := run.load) is not None:
        text = f"{search.rate:g} tuples/s, {search.load:.2f} of {search.takes:g} ({search.host})"
        at = ", ".join(f"{one.rate:g}" for one in search.calibrations)
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


def title(runs: Sequence[RunFolder]) -> str:
    """What was run, in words."""
    cells = [cell for run in runs for cell in run.cells]
    ways = {cell.facts.strategy for cell in cells if cell.facts.scheduled_by != "controller"}
    hosts = max((len(run.hosts) for run in runs), default=0)
    text = f"A stream join placed in {count(len(ways), 'way')}"
    if hosts:
        text += f" on {count(hosts, 'host')}"
    whats = {
        str(one.get("what"))
        for run in runs
        for one in run.experiment.get("disturbances", [])
        if isinstance(one, Mapping)
    }
    if whats & {"kill", "hang", "cut"}:
        return f"{text}, and what happens when a host fails"
    return f"{text}, and what happens when hosts change" if whats else text


def descriptions(strategies: Sequence[str], runs: Sequence[RunFolder]) -> list[tuple[str, str]]:
    """What each strategy does: its docstring's first line, where it is installed.

    Labels of one strategy differ in who decides where joins run, or in parameters.
    """
    from inspect import getdoc

    from nova_core.strategies.base import create

    parts: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        for part in run.experiment.get("strategies", []):
            if isinstance(part, Mapping):
                parts[str(part.get("label") or part.get("name"))] = part
    texts = []
    for label in strategies:
        part = parts.get(label, {})
        name = str(part.get("name", label))
        try:
            doc = DESCRIPTIONS.get(name) or getdoc(type(create(name))) or ""
        except NovaError:
            doc = "(not installed where this report was made)"
        text = doc.partition("\n")[0]
        scheduled_by = part.get("scheduled_by", "plan")
        if scheduled_by != "plan":
            text = SCHEDULED[scheduled_by].format(name=name)
        elif label != name:
            text = f"As {name}: {text}"
        if label != name and part.get("parameters"):
            text += f" With {_text(part['parameters'])}."
        texts.append((label, text))
    return texts


def facts_line(runs: Sequence[RunFolder], groups: Sequence[Group]) -> str:
    """Experiments, number of cells, their length, results, hosts, engines and time, in a line."""
    cells = [cell for run in runs for cell in run.cells]
    finished = sum(cell.done for cell in cells)
    parts = [", ".join(dict.fromkeys(run.name for run in runs))]
    parts.append(f"{finished} finished {'cell' if finished == 1 else 'cells'}")
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
    times = sorted(str(run.environment["time"]) for run in runs if run.environment.get("time"))
    if times:
        parts.append(times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}")
    return " · ".join(parts)
