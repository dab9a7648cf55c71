"""The hook for NebulaStream's optimizer, compiled against stand-ins of the engine's types.

It was never compiled against the engine; what is tested are its decisions and its errors.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from needs import skip_or_fail
from nes_placer import ORDERS, Operators, operators_of
from nes_plans import nes_plan

from nova_nebulastream.translate import translate
from nova_nebulastream.views import views

HERE = Path(__file__).parent
CODE = HERE.parents[1] / "adapters" / "nova_nebulastream" / "cpp"
KINDS = {"filter": "selection"}


@pytest.fixture(scope="module")
def placer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        skip_or_fail("the hook is compiled with g++, which is not there")
    build = tmp_path_factory.mktemp("hook")
    source = "".join((CODE / f"NovaPlacement.{suffix}").read_text() for suffix in ("hpp", "cpp"))
    for name in set(re.findall(r"#include <([\w/]+\.(?:hpp|h))>", source)):
        header = build / name
        header.parent.mkdir(parents=True, exist_ok=True)
        if name == "Placement/NovaPlacement.hpp":
            shutil.copy(CODE / "NovaPlacement.hpp", header)
        else:
            header.write_text('#include "nes_standins.hpp"\n')
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{build}", f"-I{HERE}"]
    files = [str(CODE / "NovaPlacement.cpp"), str(HERE / "nes_placer_main.cpp")]
    subprocess.run([*command, *files, "-o", str(build / "placer")], check=True)
    return build / "placer"


def run(placer: Path, workers: list[str], operators: list[str], plan: Path) -> dict[int, str]:
    done = subprocess.run(
        [placer, plan], input="\n".join([*workers, *operators]), capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return {int(k): v for k, v in (line.split() for line in done.stdout.splitlines())}


def described(document: dict[str, Any], operators: Operators) -> list[str]:
    """The query as `nes_placer_main.cpp` reads it."""
    left, right = document["physical"]
    sink = document["sinks"][0]
    hosts = {"source left": left["host"], "source right": right["host"], "sink": sink["host"]}
    number = {name: i for i, name in enumerate(operators)}
    lines = []
    for name, inputs in operators.items():
        kind = KINDS.get(name.split()[0], name.split()[0])
        named = sink["name"].upper() if name == "sink" else "-"
        ins = " ".join(str(number[one]) for one in inputs)
        host = hosts.get(name, "-")
        lines.append(f"operator {kind} {number[name]} {host} {named} {len(inputs)} {ins}")
    return lines


@pytest.mark.parametrize("order", ORDERS)
def test_operators_are_where_the_plan_has_them(
    placer: Path, tmp_path: Path, order: tuple[str, str]
) -> None:
    """With room on every worker, where the engine by itself would choose."""
    plan = nes_plan(3)
    translate(plan, plan.problem, tmp_path / "out")
    documents = [
        yaml.safe_load(file.read_text()) for file in sorted((tmp_path / "out/topologies").iterdir())
    ]
    hosts = {one["host"] for document in documents for one in document["workers"]}
    cut = 0
    for view, document in zip(views(plan, plan.problem), documents, strict=True):
        workers = [f"worker {host} 10" for host in hosts]
        for one in document["workers"]:
            workers += [f"link {one['host']} {to}" for to in one.get("downstream", ())]
        operators = operators_of(document, order)
        found = run(placer, workers, described(document, operators), tmp_path / "out/placement.txt")
        at = dict(zip(operators, (found[i] for i in range(len(operators))), strict=True))
        host = {node: f"10.0.0.{node.removeprefix('n ')}:8080" for node in view.nodes}
        assert {at[name] for name in ("join", "all", "select")} == {host[view.node]}
        assert at["sink"] == host[view.sink]
        for one in view.inputs:
            assert at[f"source {one.side}"] == host[one.node]
            if not one.share.whole:
                cut += 1
                assert at[f"filter {one.side}"] == host[one.node]
            # Between a selection and its source all is with the source; above it, with the join.
            below = not one.share.whole and order[0] == "watermark"
            assert at[f"watermark {one.side}"] == host[one.node if below else view.node]
    assert cut


def test_what_cannot_be_placed_is_refused(placer: Path, tmp_path: Path) -> None:
    workers = ["worker a 1", "worker b 9", "worker c 9", "link a b", "link b c"]
    query = [
        "operator source 0 a - 0",
        "operator selection 1 - - 1 0",
        "operator source 2 a - 0",
        "operator join 3 - - 2 1 2",
        "operator sink 4 c OUT 1 3",
    ]
    plan = tmp_path / "placement.txt"

    def refused(text: str, workers: list[str] = workers, query: list[str] = query) -> str:
        plan.write_text(text)
        with pytest.raises(RuntimeError) as failure:
            run(placer, workers, query, plan)
        return str(failure.value)

    plan.write_text("OUT b\n")
    assert run(placer, workers, query, plan) == {0: "a", 1: "a", 2: "a", 3: "b", 4: "c"}
    assert "sink OUT: not in Nova's plan" in refused("OTHER b\n")
    assert "line 2: expected the name of a sink, once" in refused("OUT b\nOUT c\n")
    assert "line 1: expected the name of a sink, once, and a worker" in refused("OUT\n")
    assert "operator 3: there is no worker d" in refused("OUT d\n")
    assert "no path from a to b" in refused("OUT b\n", [*workers[:3], "link b c", "link a c"])
    assert "worker a: 1 operators, at most 0" in refused("OUT b\n", ["worker a 0", *workers[1:]])
    joinless = ["operator source 0 a - 0", "operator sink 4 c OUT 1 0"]
    assert "the query has no join" in refused("OUT b\n", query=joinless)
    plan.unlink()
    with pytest.raises(RuntimeError, match="cannot be read"):
        run(placer, workers, query, plan)
