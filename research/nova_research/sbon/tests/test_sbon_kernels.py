"""SBON's kernels call those of placement, and are compiled after them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLACE = """
import sys
from nova_core import kernel_cache
from nova_core.io.examples import load_example
from nova_core.strategies import place
problem = load_example("running-example")
plans = [place(problem, f"sbon-{name}") for name in ("optimal", "relaxation")]
hosts = sys.modules["nova_research.sbon.kernels.hosts"]
kernels = hosts.cheapest, hosts.nearest
print(*(type(kernel).__name__ for kernel in kernels), [p.instances.node.tolist() for p in plans])
"""
LATER = """
kernel_cache.prepare(1_000_000)
kernels = hosts.cheapest, hosts.nearest
print(*(type(kernel).__name__ for kernel in kernels))
"""


def placed(setting: str, code: str = PLACE, **more: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NOVA_KERNELS": setting} | more,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()


def test_both_are_plain_at_first_and_compiled_together(tmp_path: Path) -> None:
    # Nothing is compiled in this test: a log that holds something says that it failed before.
    (tmp_path / "nova_core.placement.kernels.log").write_text("failed\n")
    first, later = placed("", PLACE + LATER, NUMBA_CACHE_DIR=str(tmp_path))
    assert first.startswith("function function")
    assert later == "CPUDispatcher CPUDispatcher"
    assert not (tmp_path / "nova_research.sbon.kernels.log").exists()


def test_python_and_numba_place_alike() -> None:
    (plain,), (compiled,) = placed("interpret"), placed("compile")
    assert plain.startswith("function function")
    assert compiled.startswith("CPUDispatcher CPUDispatcher")
    assert plain.split(maxsplit=2)[2] == compiled.split(maxsplit=2)[2]
