"""`python -m tests.fuzz.bare`: every command where no extra is installed works, or names its extra.

Commands are those of an environment that lacks them (``--nova``). With ``--extra``, only what needs
that extra runs, and no command may name one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nova_core.scratch import run_folder

from .campaign import BESIDE, wrong_at_all
from .children import Child, Ended, Limits, begin
from .uses import PLACEHOLDER, USES, Use, command_of, commands

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "research" / "nova_research" / "costream" / "traces" / "rack.parquet"
DISTRIBUTION, RESEARCH = "nova-placement", "nova-research"
NAMED = re.compile(r"pip install 'nova-(?:placement|research)\[([a-z]+)\]'")
LIMITS = Limits(None, 480.0, 16 << 30)
# The commands, or groups of them, that need extras; the first that is missing is named.
NEEDS = {
    "cluster": ("testbed",),
    "control run": ("testbed",),
    "corpus": ("research",),
    "corpus run": ("research", "testbed"),
    "demo": ("experiment",),
    "engines install": ("spark",),
    "experiment": ("testbed",),
    "learn": ("research",),
    "learn train": ("research", "learn"),
    "learn validate": ("research", "learn"),
    "predict": ("research",),
    "query estimate": ("queries",),
    "query reference": ("queries",),
    "query sources": ("queries",),
    "query reorder": ("research",),
    "report": ("experiment",),
    "reproduce": ("research",),
    "reproduce costream": ("research", "learn"),
    "scale": ("spark",),
    "serve": ("serve",),
    "setup": ("testbed",),
    "testbed": ("testbed",),
    "workload latency": ("spark",),
    "workload prepare": ("spark",),
}
# Options that need another extra.
OPTIONS = {
    "--set index=annoy": "annoy",
    "--baselines": "learn",
    "--model {model.npz}": "research",
    "--strategy costream": "research",
    "--engine spark": "spark",
    "--to kafka://127.0.0.1:9/t": "kafka",
}
# It runs all other figures.
LEFT_OUT = {"reproduce all"}
# What runs with an extra where these would learn from too few traces, and why some do not run.
INSTEAD = {
    "learn evaluate {model.npz} {traces.parquet} --all --baselines": (
        "learn evaluate {model.npz} {few.parquet} --all --baselines"
    ),
    "learn train {traces.parquet} -o out.npz": (
        "learn train {few.parquet} --members 1 --epochs 1 --hidden 4 -o out.npz"
    ),
    "learn validate {traces.parquet}": "",  # trains what the line above trains, five times
    "reproduce costream -o out": (
        "reproduce costream --traces 100 --tests 10 --members 1 --epochs 1 -o out"
    ),
    "testbed ssh -i {inventory.yaml} sink true": "",  # ends as ssh does
    "serve state --port 0": "",  # does not end; test_bare.py runs it
    # A machine has one rack, which other tests may have.
    "corpus run out --runs 1": "",
    "demo -o out": "",
}
# These may end with the line that hosts, brokers or clusters are not there.
HOSTS = re.compile(r"inventory.yaml|hosts.yaml|real.yaml|127.0.0.1:9|^setup")
# These may say before that something else is wrong.
EITHER = ("setup", "cluster deploy {query-plan.json}")
EXPERIMENT = "{experiment.yaml} -i {inventory.yaml} --data {readings.parquet}"
# Of commands that `USES` leaves out, and of options that need an extra.
MORE = (
    Use("plan {problem.yaml} --no-baselines --set index=annoy"),
    Use("cluster down -i {inventory.yaml}"),
    Use("cluster status -i {inventory.yaml}"),
    Use("cluster stop -i {inventory.yaml}"),
    Use("cluster up -i {inventory.yaml}"),
    Use("completion bash"),
    Use("control pause", codes=(2,)),
    Use("control resume", codes=(2,)),
    Use("corpus compare {traces.parquet}", codes=(2,)),
    Use("corpus run out --runs 1"),
    Use("corpus simulate out --runs 1"),
    Use("demo -o out"),
    Use("engines install spark"),
    Use("engines list"),
    Use("engines path spark", codes=(2,)),
    Use(f"experiment calibrate {EXPERIMENT}"),
    Use(f"experiment run {EXPERIMENT} -o out"),
    Use("learn evaluate {model.npz} {traces.parquet} --all --baselines"),
    Use("learn train {traces.parquet} -o out.npz"),
    Use("learn validate {traces.parquet}"),
    Use("query estimate questions.yaml --readings ."),
    Use("query reference questions.yaml --readings . -o out"),
    Use("query sources questions.yaml --readings . -o out"),
    Use("reproduce costream -o out"),
    Use("reproduce fig7 --synthetic --nodes 12 --strategy nova -o out"),
    Use("reproduce fig7-readings -o out", codes=(0, 2)),
    Use("reproduce fig8 --synthetic --strategy nova --workloads 1 -o out"),
    Use("reproduce fig9 --synthetic --workloads 1 -o out"),
    Use("reproduce sbon --seeds 1 --queries 1 -o out"),
    Use("reproduce sbon-migration --synthetic --nodes 20 --pairs 1 --groups 1 -o out"),
    Use("reproduce whitewater --small 1 --large 1 -o out"),
    Use("reproduce whitewater-examples --queries 1 --exhaustive 1 -o out"),
    Use("scale generate out --nodes 20"),
    Use("schema problem"),
    Use("serve state --port 0"),
    Use("setup demo", codes=(2,)),
    Use("testbed clean -i real.yaml"),
    Use("testbed down -i {inventory.yaml}"),
    Use("testbed ssh -i {inventory.yaml} sink true"),
    Use("testbed stress -i real.yaml --stop"),
    Use("testbed up -i {inventory.yaml}"),
    Use("tour"),
    Use("workload replay {readings.csv} --to kafka://127.0.0.1:9/t --wait 1"),
)
FILES = {
    "real.yaml": """inventory: 1
name: real
hosts:
- {name: sink, role: sink, address: 127.0.0.1, port: 9}
- {name: source1, role: source, address: 127.0.0.2, port: 9}
- {name: source2, role: source, address: 127.0.0.3, port: 9}
- {name: source3, role: source, address: 127.0.0.4, port: 9}
- {name: source4, role: source, address: 127.0.0.5, port: 9}
- {name: worker1, role: worker, address: 127.0.0.6, port: 9}
- {name: worker2, role: worker, address: 127.0.0.7, port: 9}
""",
    "questions.yaml": """nova: 1
nodes:
- {id: a, capacity: 9, position: [0, 0]}
- {id: b, capacity: 9, position: [1, 1]}
sources: [{id: t, node: a, stream: T, rate: 9}]
streams: [{id: T, columns: {v: float}}]
queries: [{id: q, sink: b, sql: SELECT v FROM T WHERE v > 1}]
""",
    "t.csv": "time,v\n0,1.5\n100,0.5\n200,2.5\n",
}


def uses() -> list[Use]:
    """Uses of every command and of options that need an extra."""
    return [*(use for use in USES if use.function is None), *MORE]


def needs(use: Use, known: Mapping[str, click.Command]) -> tuple[str, ...]:
    """The extras that a use needs; it names the first that is missing."""
    name = command_of(use, known)
    needed = NEEDS.get(name, NEEDS.get(name.partition(" ")[0], ()))
    options = [extra for option, extra in OPTIONS.items() if f" {option} " in f"{use.line} "]
    return (*needed, *(extra for extra in options if extra not in needed))


def requirement(extra: str) -> str:
    """What pip installs for an extra."""
    return f"{RESEARCH if extra == 'learn' else DISTRIBUTION}[{extra}]"


def enabled(needed: Sequence[str], extra: str) -> bool:
    """Whether an extra brings all that others do."""
    brought = closure(requirement(extra))
    return bool(needed) and all(closure(requirement(one)) <= brought for one in needed)


def with_extra(chosen: Sequence[Use], extra: str, known: Mapping[str, click.Command]) -> list[Use]:
    """Of some uses those that an extra is for, as they run where it is installed.

    What another one that it includes is for runs with that one, where less is installed.
    """
    found = []
    for use in chosen:
        line = INSTEAD.get(use.line, use.line)
        needed = needs(use, known)
        if line and extra in needed and enabled(needed, extra):
            codes = (0, 1, 2) if HOSTS.search(line) else use.codes
            found.append(replace(use, line=line, codes=codes))
    return found


def wrong(use: Use, ended: Ended, extra: str) -> str:
    """What is wrong with how a use ended; empty if nothing.

    Args:
        use: a command.
        ended: how it ended.
        extra: that it must name; empty where it needs none, or has it.
    """
    problem = ": ".join(filter(None, wrong_at_all(ended)))
    found = NAMED.search(ended.stderr.strip().rpartition("\n")[2])
    if problem:
        return problem
    if found is None and not extra:
        codes = (2,) if "{PORT}" in use.line else use.codes  # there is no web server
        return "" if ended.code in codes else f"exit code {ended.code}"
    if found is None and use.line.startswith(EITHER):
        return ""
    named = "" if found is None else found[1]
    return "" if named == extra and ended.code else f"names {named!r}, not {extra!r}"


@cache
def closure(name: str) -> set[str]:
    """A package and all that it needs without its extras, by normalized names."""
    found: set[str] = set()
    left = [Requirement(name)]
    while left:
        one = left.pop()
        found.add(canonicalize_name(one.name))
        try:
            lines = requires(one.name) or []
        except PackageNotFoundError:
            continue
        for needed in map(Requirement, lines):
            marker = needed.marker
            wanted = marker is None or any(marker.evaluate({"extra": e}) for e in ("", *one.extras))
            if wanted and canonicalize_name(needed.name) not in found:
                left.append(needed)
    return found


# --- running --------------------------------------------------------------------------------------


def main() -> int:
    """Run every use; exit code 1 when one neither works nor names its extra."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.bare", description=__doc__)
    parser.add_argument("--nova", type=Path, required=True, help="the environment's command")
    parser.add_argument("--extra", default="", help="the only extra that is installed")
    parser.add_argument("--use", default="", help="only uses that begin like this")
    parser.add_argument("--material", type=Path, help="what `make_material` has written")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    # Here, `nova setup` must install nothing.
    os.environ.pop("CI", None)
    place = Path(tempfile.mkdtemp(prefix="nova-bare-"))
    material = place / "material"
    if asked.material is None:
        make_material(material)
    else:
        shutil.copytree(asked.material, material)
    known = dict(commands())
    chosen = [use for use in uses() if use.line.startswith(asked.use)]
    if asked.extra:
        chosen = with_extra(chosen, asked.extra, known)
        # Commands go on to their hosts, which are not there, and make no virtual ones.
        (material / "inventory.yaml").write_text(FILES["real.yaml"])
    failures: list[str] = []
    for use, ended in _ended(chosen, material, place, asked.nova, asked.jobs):
        extra = "" if asked.extra else next(iter(needs(use, known)), "")
        problem = wrong(use, ended, extra)
        last = ended.stderr.strip().rpartition("\n")[2]
        head = f"WRONG: {problem}" if problem else extra or "works"
        text = f"{head}: nova {use.line}, {ended.seconds:.1f} s\n    {last[-300:]}"
        print(text, flush=True)
        if problem:
            failures.append(text)
    shutil.rmtree(place, ignore_errors=True)
    print("\n".join([f"{len(chosen)} uses, {len(failures)} of them wrong", *failures]))
    return 1 if failures else 0


def make_material(place: Path) -> None:
    """Write valid files of every kind, with everything that is installed, into a new directory."""
    place.mkdir()
    code = "import sys; from pathlib import Path; from tests.fuzz.__main__ import _write_material"
    command = [sys.executable, "-c", f"{code}; _write_material(Path(sys.argv[1]))", str(place)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, text in FILES.items():
        (place / name).write_text(text)
    import pyarrow.parquet

    traces = pyarrow.parquet.read_table(TRACES)
    pyarrow.parquet.write_table(traces.slice(0, 120), place / "few.parquet")


def _ended(chosen: Sequence[Use], material: Path, place: Path, path: Path, jobs: int) -> Any:
    """Run uses, so many at a time, each on its copy of the material; how they ended."""
    left, running = list(chosen), list[tuple[Use, Child]]()
    while left or running:
        while left and len(running) < jobs:
            use = left.pop(0)
            folder = place / str(len(left))
            folder.mkdir()
            for name in (*use.files, *FILES):
                source = material / name
                copy = shutil.copytree if source.is_dir() else shutil.copy
                copy(source, folder / name)
                for other in BESIDE.get(name, ()):
                    shutil.copy(material / other, folder / other)
            running.append((use, begin(_command(use, path), folder, LIMITS)))
        for use, child in list(running):
            if (ended := child.ended()) is not None:
                running.remove((use, child))
                yield use, ended
        time.sleep(0.002)


def _command(use: Use, path: Path) -> Callable[[], object]:
    given = {"PORT": "9", "CASE": "none"}
    words = [PLACEHOLDER.sub(lambda one: given.get(one[1], one[1]), word) for word in use.words]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return lambda: os.execve(path, [str(path), *words], environment)


if __name__ == "__main__":
    run_folder()
    sys.exit(main())
