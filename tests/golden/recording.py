"""What is recorded: commands on problems, events and folders of runs, and what they answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from nova_core.cli import cli

from .comparison import CODE, brief, plain

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
Answer = dict[str, Any]

SETTINGS = {
    "costream": ("--set", "candidates=20"),
    # What it has found by then would depend on the machine.
    "ilp": ("--set", "time_limit=3600"),
}
"""Options of strategies that would take long, or not long enough."""
VARIANTS = {
    "pairs": {
        "sigma": ("--sigma", "0.1"),
        "bandwidth": ("--bandwidth", "60"),
        "c-min": ("--c-min", "20"),
        "spread": ("--on-full", "spread"),
        "no-refine": ("--no-refine",),
        "source-latency": ("--objective", "source-latency"),
        "network-usage": ("--objective", "network-usage"),
    },
    "queries": {
        "sigma": ("--sigma", "0.1"),
        "spread": ("--on-full", "spread"),
        "no-push": ("--no-push",),
        "no-split": ("--no-split",),
        "no-share": ("--no-share",),
        "source-latency": ("--objective", "source-latency"),
        "network-usage": ("--objective", "network-usage"),
    },
}
"""Options of `nova`, each for every problem."""

Rows = list[dict[str, Any]]


def _on_one_node(rows: Rows) -> None:
    for row in rows:
        row["node"] = rows[0]["node"]


BREAKAGES: dict[str, Callable[[Rows], Any]] = {
    "an instance is lost": lambda rows: rows.pop(),
    "an instance is there twice": lambda rows: rows.append(rows[0]),
    "all are on one node": _on_one_node,
    "a node is unknown": lambda rows: rows[0].update(node="nowhere"),
}
"""What is done to the instances of a plan to see what `nova check` says."""
DERIVED = {"edges", "loads", "totals", "report"}
"""Sections of a plan that follow from the others."""
DECIDED = {"operator", "node", "left", "right", "feeds"}
"""Fields of an instance that do not."""

LIVE: dict[str, tuple[str, tuple[str, ...]]] = {
    "field": ("field", ()),
    "two-regions": ("two-regions", ("--gain-share", "0")),
    "failures": ("heterogeneous", ()),
    "rates": ("near-uniform", ("--cooldown", "3")),
    "overload": ("crowded-some", ("--overload",)),
    "queries-come-and-go": ("several-joins-and-sinks", ()),
    "moves": ("heights", ("--gain", "2", "--gain-share", "0")),
    "links": ("link-budgets", ()),
    "requirements": ("requirements", ()),
    "many-to-many": ("many-to-many", ("--pin", "join")),
    "batches": ("four-dimensions", ()),
    "refused": ("two-regions", ()),
    "whole-queries": ("shared-and-combined", ()),
}
"""Problem and options of each file of events."""

SPARK = "spark_home=/opt/engine", "python=/opt/python"
BROKER = "connectors=/opt/connectors", "kafka=10.0.0.9:9092"
BUNDLES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "flink": ("pairs", "flink", ("home=/opt/engine",)),
    "flink-from-kafka": ("pairs", "flink", ("home=/opt/engine", *BROKER)),
    "storm": ("pairs", "storm", ("home=/opt/engine",)),
    "spark": ("pairs", "spark", SPARK),
    "spark-stages": ("queries", "spark", ("form=stages",)),
    "kafka": ("pairs", "kafka", ()),
    "nebulastream": ("pairs", "nebulastream", ()),
    "nebulastream-queries": ("queries", "nebulastream", ()),
}
"""Kind of problems, engine and settings of each translation; none depends on this machine."""
TRANSLATED = {
    "pairs": ("running-example", "rooms", "two-regions", "several-joins-and-sinks"),
    "queries": ("hall", "picking", "climate-sql"),
}


def run(*arguments: str) -> click.testing.Result:
    """A command's result, in the current folder."""
    result = CliRunner().invoke(cli, arguments, prog_name="nova")
    if result.exit_code not in (0, 1, 2):
        raise RuntimeError(f"nova {' '.join(arguments)}: {result.output}")
    return result


def said(*arguments: str) -> list[str]:
    """The lines that a command writes, and its exit code unless it is 0."""
    result = run(*arguments)
    ending = [f"exit {result.exit_code}"] if result.exit_code else []
    return [*filter(None, map(str.rstrip, result.output.splitlines())), *ending]


def plan(name: str, *options: str) -> Any:
    """Write a plan of ``problem.yaml`` as ``NAME.json``, and return it; or the refusal."""
    result = run("plan", "problem.yaml", "--no-baselines", "-o", f"{name}.json", *options)
    if result.exit_code:
        return result.output.strip()
    return json.loads(Path(f"{name}.json").read_text())


def plans(path: Path, kind: str) -> Answer:
    """Plans of all strategies and variants, and what is said about some of them."""
    shutil.copy(path, "problem.yaml")
    strategies = {one.name for one in entry_points(group="nova.strategies")}
    chosen = {name: ("--strategy", name, *SETTINGS.get(name, ())) for name in sorted(strategies)}
    chosen |= {f"nova, {name}": options for name, options in VARIANTS[kind].items()}
    made = {name: plan(name, *options) for name, options in chosen.items()}
    answer: Answer = {name: _summary(one) for name, one in made.items()}
    best = next(name for name in ("nova", "nova, spread", "sink") if isinstance(made[name], dict))
    answer["digest of the problem"] = made[best]["problem"]["digest"]
    rows = made[best]["instances"]
    nodes = [row["node"] for row in rows]
    some = rows[0]["operator"].partition("/")[0]
    for what in ((), ("--join", some), ("--node", max(nodes, key=nodes.count))):
        answer[" ".join(("explain", *what))] = _about("explain", best, "--rows", "2", *what)
    answer["explain sink"] = _about("explain", "sink", "--rows", "1")
    for name in (best, "sink"):
        answer[f"check {name}"] = _about("check", name)
    for name, damage in BREAKAGES.items():
        kept = {key: value for key, value in made[best].items() if key not in DERIVED}
        damaged = [{key: row[key] for key in row if key in DECIDED} for row in rows]
        damage(damaged)
        Path(f"{name}.json").write_text(json.dumps(kept | {"instances": damaged}))
        answer[f"check, if {name}"] = _about("check", name)
    return answer


def _about(command: str, name: str, *options: str) -> list[str]:
    return said(command, f"{name}.json", "-p", "problem.yaml", *options)


def _summary(made: Any) -> Any:
    """Where instances run, totals, and a digest of each section; a refusal as it is."""
    if isinstance(made, str):
        return made
    hosts: dict[str, list[str]] = {}
    for row in made["instances"]:
        cut = [row["left"], row["right"]]
        ranges = ",".join(f"{begin}:{end}" for begin, end in cut)
        whole = cut == [[0, 1], [0, 1]]
        hosts.setdefault(row["node"], []).append(row["operator"] + f"[{ranges}]" * (not whole))
    return {
        "hosts": {node: " ".join(texts) for node, texts in hosts.items()},
        "totals": plain(made["totals"]),
        "sections": {key: brief(value) for key, value in plain(made).items() if key != "totals"},
    }


def live(events: Path, problem: Path, options: tuple[str, ...]) -> Answer:
    """What each event changes, and the plan and the problem after those that are not refused."""
    shutil.copy(problem, "problem.yaml")
    shutil.copy(events, "events.jsonl")
    plan("old")
    result = run("live", "problem.yaml", "old.json", "--events", "events.jsonl", *options)
    deltas = [json.loads(line) for line in result.stdout.splitlines()]
    texts = events.read_text().splitlines()
    answer: Answer = {"deltas": []}
    accepted = []
    for text, delta in zip(texts, deltas, strict=True):
        changes = {key: value for key, value in delta.items() if value}
        answer["deltas"].append({"event": text} | plain(changes))
        accepted += [text] * ("error" not in delta)
    Path("accepted.jsonl").write_text("\n".join(accepted) + "\n")
    files = ("accepted.jsonl", "-o", "new.json", "--problem-output", "new.yaml")
    answer["replan"] = said("replan", "problem.yaml", "old.json", *files, *options)
    if Path("new.json").exists():
        answer["after"] = _summary(json.loads(Path("new.json").read_text()))
        answer["check"] = said("check", "new.json", "-p", "new.yaml")
    return answer


def bundles(engine: str, problems: Iterable[Path], settings: tuple[str, ...]) -> Answer:
    """The files that plans become, and what is in them."""
    answer: Answer = {}
    for path in problems:
        shutil.copy(path, "problem.yaml")
        plan("plan")
        chosen = [word for one in settings for word in ("--set", one)]
        folder = path.stem
        chosen += ["--engine", engine, "-o", folder]
        answer[folder] = {"says": said("translate", "plan.json", "-p", "problem.yaml", *chosen)}
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file() and file.suffix not in CODE:
                answer[folder][str(file.relative_to(folder))] = brief(file.read_text())
    return answer


def reports(folders: Iterable[Path]) -> Answer:
    """The numbers of a report about runs, by strategy and setting."""
    names = [shutil.copytree(folder, folder.name) for folder in folders]
    answer = json.loads(run("report", *names, "-o", "report.html", "--json").stdout)
    groups = json.loads(Path("report-files", "aggregate.json").read_text())["groups"]
    numbers: Answer = {}
    for shown, found in zip(answer["groups"], groups, strict=True):
        name = " ".join(map(str, (found["strategy"], *found["setting"].values())))
        numbers[name] = {key: brief(value) for key, value in (found | shown).items()}
    return {"ratios": plain(answer["ratios"]), "notes": plain(answer["notes"]), "groups": numbers}


def cases() -> dict[str, Callable[[], Answer]]:
    """All cases by name; each is recorded in the current folder, which must be empty."""
    found: dict[str, Callable[[], Answer]] = {}
    for kind in VARIANTS:
        for path in sorted((HERE / "problems" / kind).glob("*.yaml")):
            found[f"{kind}/{path.stem}"] = partial(plans, path, kind)
    for name, (problem, options) in LIVE.items():
        (path,) = (HERE / "problems").glob(f"*/{problem}.yaml")
        found[f"live/{name}"] = partial(live, HERE / "events" / f"{name}.jsonl", path, options)
    for name, (kind, engine, settings) in BUNDLES.items():
        paths = [HERE / "problems" / kind / f"{one}.yaml" for one in TRANSLATED[kind]]
        found[f"bundles/{name}"] = partial(bundles, engine, paths, settings)
    found["reports"] = partial(reports, sorted((HERE / "runs").iterdir()))
    return found


def recorded(name: str) -> Answer:
    """The golden of a case; empty if there is none."""
    path = EXPECTED / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}
