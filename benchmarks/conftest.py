"""What benchmarks share: which cases run, and one core for those that are measured on one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let ``case`` be one of the module's ``CASES``; ``SMALL``, where nothing is measured."""
    if "case" in metafunc.fixturenames:
        measured = metafunc.config.getoption("benchmark_enable")
        cases = metafunc.module.CASES if measured else [metafunc.module.SMALL]
        metafunc.parametrize("case", cases, ids=str)


@pytest.fixture
def one_core() -> Iterator[None]:
    """Run on one core, without threads of numpy's libraries."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    with threadpool_limits(1):
        yield
    os.sched_setaffinity(0, cores)
