"""The hook for NebulaStream's optimizer.

Its decisions and errors are tested with stand-ins of the engine's types. `NOVA_NES_BUILD` names a
build directory of the engine, with ``compile_commands.json``: then the hook is also compiled
against the engine's own headers, with `NOVA_NES_RUN` before the compiler's command (such as
``chroot DIRECTORY``).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from needs import skip_or_fail

HERE = Path(__file__).parent
CODE = HERE.parents[1] / "adapters" / "nova_nebulastream" / "cpp"
# A cut join whose result an aggregate takes, from two instances: the sink is operator 0.
QUERY = [
    "operator source 9 a - 0",
    "operator watermark 8 - - 1 9",
    "operator selection 7 - - 1 8",
    "operator source 6 b - 0",
    "operator join 5 - - 2 7 6",
    "operator projection 4 - - 1 5",
    "operator source 3 a - 0",
    "operator union 2 - - 2 4 3",
    "operator aggregation 1 - - 1 2",
    "operator sink 0 d OUT 1 1",
]
WORKERS = [f"worker {name} unlimited" for name in "abcd"]
LINKS = ["link a c", "link b c", "link c d", "link a d"]


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


def run(placer: Path, lines: list[str], plan: Path) -> dict[int, str]:
    done = subprocess.run([placer, plan], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return {int(k): v for k, v in (line.split() for line in done.stdout.splitlines())}


def test_operators_are_where_the_plan_has_them(placer: Path, tmp_path: Path) -> None:
    """A union is with what takes from it; what is added runs where its input is produced."""
    plan = tmp_path / "placement.txt"
    plan.write_text("OTHER a\n\nOUT d c\n")
    assert run(placer, [*WORKERS, *LINKS, *QUERY], plan) == {
        0: "d",
        1: "d",
        2: "d",
        3: "a",
        4: "c",
        5: "c",
        6: "b",
        7: "a",
        8: "a",
        9: "a",
    }
    plan.write_text("OUT d d\n")
    assert run(placer, [*WORKERS, *LINKS, *QUERY], plan)[5] == "d"


def test_a_query_without_joins_stays_with_its_source(placer: Path, tmp_path: Path) -> None:
    plan = tmp_path / "placement.txt"
    plan.write_text("OUT\n")
    query = ["operator source 2 a - 0", "operator selection 1 - - 1 2", "operator sink 0 d OUT 1 1"]
    assert run(placer, [*WORKERS, *LINKS, *query], plan) == {0: "d", 1: "a", 2: "a"}


@pytest.mark.parametrize(
    ("text", "lines", "complaint"),
    [
        ("OTHER b\n", [*WORKERS, *LINKS], "sink OUT: not in Nova's plan"),
        ("OUT d c\nOUT d d\n", [*WORKERS, *LINKS], "line 2: sink OUT is there twice"),
        ("OUT d\n", [*WORKERS, *LINKS], "the query has more than the 1 joins and aggregations"),
        ("OUT d c c\n", [*WORKERS, *LINKS], "the plan has 3 joins and aggregations, the query 2"),
        ("OUT d e\n", [*WORKERS, *LINKS], "there is no worker e"),
        ("OUT d c\n", [*WORKERS, *LINKS[:1], *LINKS[2:]], "no path from b to c"),
        (
            "OUT d c\n",
            ["worker a 1", *WORKERS[1:], *LINKS],
            "worker a: 2 operators, at most 1 may run there",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(
    placer: Path, tmp_path: Path, text: str, lines: list[str], complaint: str
) -> None:
    plan = tmp_path / "placement.txt"
    plan.write_text(text)
    with pytest.raises(RuntimeError, match=re.escape(complaint)):
        run(placer, [*lines, *QUERY], plan)
    plan.unlink()
    with pytest.raises(RuntimeError, match="cannot be read"):
        run(placer, [*lines, *QUERY], plan)


def test_it_compiles_against_the_engine_itself(tmp_path: Path) -> None:
    build = os.environ.get("NOVA_NES_BUILD", "")
    if not build:
        pytest.skip("NOVA_NES_BUILD names no build directory of NebulaStream")
    commands = json.loads((Path(build) / "compile_commands.json").read_text())
    one = next(each for each in commands if each["file"].endswith("BottomUpPlacement.cpp"))
    words = [w for w in shlex.split(one["command"]) if Path(w).name != "ccache"]
    # It may be another root in which the compiler runs.
    scratch = Path(build) / f"nova-hook-{tmp_path.name}"
    (scratch / "Placement").mkdir(parents=True)
    try:
        shutil.copy(CODE / "NovaPlacement.hpp", scratch / "Placement")
        shutil.copy(CODE / "NovaPlacement.cpp", scratch)
        words[words.index(one["file"])] = str(scratch / "NovaPlacement.cpp")
        words[words.index("-o") + 1] = str(scratch / "NovaPlacement.o")
        words.insert(1, f"-I{scratch}")
        command = f"cd {shlex.quote(one['directory'])} && {shlex.join(words)}"
        done = subprocess.run(
            [*shlex.split(os.environ.get("NOVA_NES_RUN", "")), "sh", "-c", command],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(scratch)
