"""Whether kernels became slower: this checkout against another commit, in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core import console
from nova_core.errors import NovaError
from nova_core.user_cache import user_cache
from nova_harness.bench.base import COMPILED, ONE_THREAD, duration

if TYPE_CHECKING:
    from rich.table import Table

TRIAL = Path(__file__).with_name("guard_trial.py")
# Directories of packages in a checkout, old or new.
ROOTS = (".", "adapters", "workloads", "testbed", "harness")


@dataclass(frozen=True)
class Case:
    """What is compared.

    Attributes:
        sizes: numbers of nodes of generated topologies for placement and live events.
        query_sizes: the same for whole queries.
        rounds: how often each commit has its turn.
        repeat: runs of each step in a turn.
        events: timed of each kind in a turn.
        seed: of topologies and events.
    """

    sizes: tuple[int, ...]
    query_sizes: tuple[int, ...]
    rounds: int
    repeat: int
    events: int
    seed: int


@dataclass(frozen=True)
class Measurement:
    """One step on one size, in both commits.

    Attributes:
        step: what was timed.
        nodes: of the topology.
        before: seconds of CPU time in the other commit, the quickest turn.
        now: the same of this checkout.
        ratio: ``now`` divided by ``before``.
        before_spread: slowest turn divided by the quickest, of the other commit.
        now_spread: the same of this checkout.
    """

    step: str
    nodes: int
    before: float
    now: float
    ratio: float
    before_spread: float
    now_spread: float


def checkout() -> Path:
    """The git checkout that this package is part of.

    Raises:
        NovaError: when it is installed otherwise.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        raise NovaError(
            f"bench guard: {root} is not a git checkout of Nova, which has other commits to "
            "compare with; run this from one"
        )
    return root


def last_tag(root: Path) -> str:
    """The last tag before the current commit.

    Raises:
        NovaError: when there is none.
    """
    try:
        return _git(root, "describe", "--tags", "--abbrev=0").decode().strip()
    except NovaError as error:
        raise NovaError(
            "bench guard: no tag to compare with; name a commit with --against"
        ) from error


def _git(root: Path, *arguments: str) -> bytes:
    try:
        run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise NovaError("bench guard: git is not installed") from error
    if run.returncode:
        lines = run.stderr.decode(errors="replace").strip().splitlines()
        raise NovaError(f"bench guard: git: {lines[-1] if lines else run.returncode}")
    return run.stdout


def tree_of(root: Path, revision: str) -> Path:
    """The files of a commit, kept in the user's cache, where its kernels are compiled once.

    Raises:
        NovaError: when there is no such commit.
    """
    try:
        commit = _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except NovaError as error:
        raise NovaError(f"bench guard: {revision!r} is no commit of {root}") from error
    name = commit.decode().strip()
    tree = user_cache() / "guard" / name
    if not tree.exists():
        packed = _git(root, "archive", "--prefix=tree/", name)
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent) as place:
            # By tar, as tarfile keeps inside a directory only since Python 3.11.4.
            subprocess.run(["tar", "-x", "-C", place], input=packed, check=True)
            Path(place, "tree").rename(tree)
        console.say(f"{revision} is now in {tree}; its kernels are compiled first, for minutes")
    return tree


def measure(case: Case, against: str | None) -> list[Measurement]:
    """Compare this checkout with another commit, each step in turn, each turn in its own process.

    Args:
        case: what is compared.
        against: the other commit; None for the last tag.

    Raises:
        NovaError: without a checkout, or such a commit, or when a step fails.
    """
    root = checkout()
    against = against or last_tag(root)
    trees = {against: tree_of(root, against), "this checkout": root}
    events: list[str] = []
    if case.sizes:
        known = [_trial(name, tree, "kinds", 0, case, ()) for name, tree in trees.items()]
        events = [kind for kind in known[1] if kind in known[0]]
    # Events last: those of a million nodes take longest.
    work = [("placement", size) for size in case.sizes]
    work += [("queries", size) for size in case.query_sizes]
    work += [("live", size) for size in case.sizes]
    measurements: list[Measurement] = []
    for kind, nodes in work:
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for number in range(case.rounds):
            for name, tree in trees.items():
                console.say(f"{kind}, {nodes:,} nodes, round {number + 1} of {case.rounds}: {name}")
                turns[name].append(_trial(name, tree, kind, nodes, case, events))
        measurements += _compared(nodes, *turns.values())
    return measurements


def _trial(name: str, tree: Path, kind: str, nodes: int, case: Case, events: Sequence[str]) -> Any:
    """What one process answers.

    Raises:
        NovaError: with its last message, when it fails; when it measured other code.
    """
    numbers = map(str, (nodes, case.repeat, case.seed, case.events))
    path = os.pathsep.join(str((tree / part).resolve()) for part in ROOTS)
    run = subprocess.run(
        [sys.executable, "-P", str(TRIAL), kind, *numbers, *events],
        capture_output=True,
        env=os.environ | ONE_THREAD | COMPILED | {"PYTHONPATH": path},
        check=False,
    )
    if run.returncode:
        lines = run.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"ended with status {run.returncode}"
        raise NovaError(f"bench guard: {kind} of {name}: {reason}")
    answer = json.loads(run.stdout)
    if not Path(answer["from"]).is_relative_to(tree.resolve()):
        raise NovaError(f"bench guard: {name}: {answer['from']} was measured instead")
    return answer["answer"]


def _compared(
    nodes: int, before: Sequence[dict[str, float]], now: Sequence[dict[str, float]]
) -> list[Measurement]:
    measurements = []
    for step in now[0]:
        old, new = [one[step] for one in before], [one[step] for one in now]
        measurements.append(
            Measurement(
                step=step,
                nodes=nodes,
                before=min(old),
                now=min(new),
                ratio=min(new) / min(old),
                before_spread=max(old) / min(old),
                now_spread=max(new) / min(new),
            )
        )
    return measurements


def summary_table(measurements: Sequence[Measurement]) -> Table:
    """Times of both commits and their ratios."""
    table = console.table(
        "CPU time of the quickest turn; spread: the slowest divided by the quickest",
        ["step", ">nodes", ">before", ">spread", ">now", ">spread", ">ratio"],
    )
    for m in measurements:
        table.add_row(
            m.step,
            f"{m.nodes:,}",
            duration(m.before),
            f"{m.before_spread:.2f}",
            duration(m.now),
            f"{m.now_spread:.2f}",
            f"{m.ratio:.2f}",
        )
    return table
