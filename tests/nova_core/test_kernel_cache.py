from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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
    kept = sorted((kernels / "__pycache__").glob("kernels-*"))
    assert len(kept) == 2
    assert all(any(directory.rglob("*.nbi")) for directory in kept)


def test_a_wish_for_another_place_is_respected(tmp_path: Path) -> None:
    kernels = package(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    assert answer(tmp_path, NUMBA_CACHE_DIR=str(elsewhere)) == f"1 {elsewhere}"
    assert any(elsewhere.rglob("*.nbi"))
    assert not list((kernels / "__pycache__").glob("kernels-*"))
    shutil.rmtree(elsewhere)


PLACE = """
import sys
from nova_core.model.examples import load_example
from nova_core.strategies import place
plan = place(load_example("running-example"))
print("numba" in sys.modules, plan.instances.node.tolist())
"""


def placed(cache: Path, setting: str) -> str:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "NOVA_KERNELS": setting}
    run = subprocess.run(
        [sys.executable, "-c", PLACE], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout


def test_a_small_problem_waits_for_no_compiler_and_one_process_compiles(tmp_path: Path) -> None:
    """The first plan of an installation took 50 s."""
    # Nothing may be compiled in this test: a log that holds something says that it failed before.
    (tmp_path / "nova_core.placement.kernels.log").write_text("failed\n")
    assert placed(tmp_path, "").startswith("False")
    assert not list(tmp_path.rglob("*.nbi"))


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
