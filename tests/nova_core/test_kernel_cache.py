from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nova_core.compile_kernels import _remove_unfinished
from nova_core.io.examples import load_example
from nova_core.io.files import write_problem

INIT = """
from nova_core.kernel_cache import kernel_cache
with kernel_cache(__file__):
    from kernels import calls
"""
CALLS = """
from nova_core.kernel_cache import njit
from kernels.called import called
@njit(cache=True)
def calls():
    return called()
"""
CALLED = (
    "from nova_core.kernel_cache import njit\n@njit(cache=True)\ndef called():\n    return {}\n"
)


def package(tmp_path: Path) -> Path:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "__init__.py").write_text(INIT)
    (kernels / "calls.py").write_text(CALLS)
    (kernels / "called.py").write_text(CALLED.format(1))
    return kernels


def answer(tmp_path: Path, **environment: str) -> str:
    code = "import kernels, numba\nprint(kernels.calls.calls(), numba.config.CACHE_DIR)"
    clean = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    clean["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_an_edited_kernel_is_not_called_in_its_old_form(tmp_path: Path) -> None:
    kernels = package(tmp_path)
    assert answer(tmp_path) == "1"
    # Of another length: Python itself takes an equally long file of the same second for the old.
    (kernels / "called.py").write_text(CALLED.format(12))
    assert answer(tmp_path) == "12"
    kept = sorted((tmp_path / "cache" / "nova").glob("kernels-*"))
    assert len(kept) == 2
    assert all(any(directory.rglob("*.nbi")) for directory in kept)


def test_another_installation_of_the_same_sources_compiles_nothing(tmp_path: Path) -> None:
    kernels = package(tmp_path)
    assert answer(tmp_path) == "1"
    cache = tmp_path / "cache"
    written = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}
    assert written
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(kernels, other / "kernels")
    assert answer(other, XDG_CACHE_HOME=str(cache)) == "1"
    assert written == {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}


def test_installations_that_begin_at_once_share_a_cache(tmp_path: Path) -> None:
    kernels = package(tmp_path)
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(answer, [tmp_path] * 4)) == ["1"] * 4
    assert not list((kernels / "__pycache__").glob("kernels-*"))


def test_kernels_are_kept_beside_their_sources_where_users_have_no_cache(tmp_path: Path) -> None:
    kernels = package(tmp_path)
    (tmp_path / "cache").write_text("a file")
    assert answer(tmp_path) == "1"
    (kept,) = (kernels / "__pycache__").glob("kernels-*")
    assert any(kept.rglob("*.nbi"))


def test_what_nobody_uses_any_more_is_removed(tmp_path: Path) -> None:
    package(tmp_path)
    cache = tmp_path / "cache" / "nova"
    for name in ("kernels-old", "kernels-new", "other"):
        (cache / name / "below").mkdir(parents=True)
    for name in ("kernels-old", "other"):
        os.utime(cache / name, (0, 0))
    answer(tmp_path)
    assert not (cache / "kernels-old").exists()
    assert (cache / "kernels-new").exists()
    assert (cache / "other").exists()


def test_a_wish_for_another_place_is_respected(tmp_path: Path) -> None:
    kernels = package(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    assert answer(tmp_path, NUMBA_CACHE_DIR=str(elsewhere)) == f"1 {elsewhere}"
    assert any(elsewhere.rglob("*.nbi"))
    assert not list((kernels / "__pycache__").glob("kernels-*"))
    assert not (tmp_path / "cache").exists()
    shutil.rmtree(elsewhere)


def test_what_compiled_kernels_call_is_compiled_though_nothing_else_is(tmp_path: Path) -> None:
    """Kernels that could run as Python are called by some that cannot."""
    kernels = package(tmp_path)
    below = tmp_path / "below"
    below.mkdir()
    (below / "__init__.py").write_text(
        INIT.replace("__file__", "__file__, plain='below:none'").replace(
            "kernels import calls", "below import called"
        )
    )
    (below / "called.py").write_text(CALLED.format(7))
    (kernels / "calls.py").write_text(CALLS.replace("kernels.called", "below.called"))
    (kernels / "__init__.py").write_text(
        "import below\n" + INIT.replace("__file__", "__file__, below.__file__")
    )
    assert answer(tmp_path, NOVA_KERNELS="interpret") == "7"


PLACE = """
import sys
from nova_core.io.examples import load_example
from nova_core.strategies import place
plan = place(load_example("running-example"))
print("numba" in sys.modules, plan.instances.node.tolist())
"""


def placed(cache: Path, setting: str, code: str = PLACE) -> str:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "NOVA_KERNELS": setting}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout


def test_a_small_problem_waits_for_no_compiler(tmp_path: Path) -> None:
    """The first plan of an installation took 50 s."""
    # Nothing is compiled in this test: a log that holds something says that it failed before.
    (tmp_path / "nova_core.placement.kernels.log").write_text("failed\n")
    assert placed(tmp_path, "").startswith("False")
    assert not list(tmp_path.rglob("*.nbi"))


SMALL_THEN_LARGE = f"""{PLACE}
from nova_core import kernel_cache
kernel_cache.prepare(1_000_000)
print(type(sys.modules["nova_core.placement.kernels.capacity_tree"].nearest).__name__)
"""


def test_a_large_problem_after_a_small_one_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "nova_core.placement.kernels.log").write_text("failed\n")
    assert placed(tmp_path, "", SMALL_THEN_LARGE).endswith("CPUDispatcher\n")


@pytest.mark.e2e
def test_kernels_are_compiled_in_the_background_and_used_then(tmp_path: Path) -> None:
    first = placed(tmp_path, "")
    assert first.startswith("False")
    until = time.monotonic() + 600
    while not list(tmp_path.glob("compiled-*")):
        assert time.monotonic() < until, list(tmp_path.iterdir())
        time.sleep(0.5)
    assert (tmp_path / "nova_core.placement.kernels.log").read_text() == ""
    assert list(tmp_path.rglob("*.nbi"))
    again = placed(tmp_path, "")
    assert again.startswith("True")
    assert again.split(maxsplit=1)[1] == first.split(maxsplit=1)[1]


@pytest.mark.e2e
def test_a_first_comparison_shows_no_time_of_the_compiler(tmp_path: Path) -> None:
    problem = tmp_path / "p.yaml"
    write_problem(load_example("running-example"), problem)
    command = "from nova_core.cli import main; main()"
    words = ["compare", str(problem), "nova", "top-c", "whitewater-annealing", "--json"]
    environment = {k: v for k, v in os.environ.items() if k != "NOVA_KERNELS"}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    runs = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", command, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(json.loads(run.stdout)["strategies"])
    for name, first in runs[0].items():
        # The compiler took seconds; what is shown is what the second run shows, but for noise.
        assert first["seconds"] < 0.5, (name, first)
        assert runs[1][name]["compile_seconds"] < 0.5
    assert sum(first["compile_seconds"] for first in runs[0].values()) > 5


def test_what_a_killed_compiler_was_writing_is_removed(tmp_path: Path) -> None:
    names = ("k-1.nbc", "k-1.nbc.tmp.0123456789abcdef", "k-2.nbc.tmp.fedcba9876543210")
    for name in names:
        (tmp_path / "kernels").mkdir(exist_ok=True)
        (tmp_path / "kernels" / name).touch()
    for name in names[:2]:
        os.utime(tmp_path / "kernels" / name, (0, 0))
    _remove_unfinished(tmp_path)
    left = {path.name for path in (tmp_path / "kernels").iterdir()}
    assert left == {names[0], names[2]}  # the last may be another process's


EACH = """
import hashlib, sys
from nova_core.errors import InfeasibleError
from nova_core.strategies import place
sys.path.append(sys.argv[1])
from problem_families import FAMILIES
for name, family in FAMILIES.items():
    for more in ({}, {"refine": False}, {"index": "kdtree"}, {"on_full": "spread"}):
        try:
            plan = place(family(3), **more)
            columns = *vars(plan.instances).values(), *vars(plan.partitions).values()
            arrays = [a for a in (*columns, plan.virtual_position) if hasattr(a, "tobytes")]
            said = len(arrays), hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()
        except InfeasibleError as error:
            said = str(error)
        print(name, more, said)
"""


def test_python_and_numba_place_every_family_alike() -> None:
    """To the last bit, also where costs are equal: one seed gives one result."""
    families = str(Path(__file__).parent / "strategies")
    said = []
    for setting in ("interpret", "compile"):
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", EACH, families],
            env=os.environ | {"NOVA_KERNELS": setting},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(run.stdout.splitlines())
    assert len(said[0]) > 70
    assert said[0] == said[1]


def test_python_and_numba_place_alike(tmp_path: Path) -> None:
    interpreted = placed(tmp_path, "interpret").split(maxsplit=1)
    compiled = subprocess.run(
        [sys.executable, "-c", PLACE],
        env=os.environ | {"NOVA_KERNELS": "compile"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split(maxsplit=1)
    assert (interpreted[0], compiled[0]) == ("False", "True")
    assert interpreted[1] == compiled[1]
