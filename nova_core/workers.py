"""Kernels on all cores, with the same result on any number of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

Progress = Callable[[int, int], None]

# Below this many nodes, threads cost more than they save.
PARALLEL_NODES = 20_000


class Workers:
    """Splits ranges of work among threads; a context manager."""

    def __init__(self, nodes: int, threads: int | None = None) -> None:
        """Start them.

        Args:
            nodes: n; few nodes need no threads.
            threads: how many, or None for as many as there are cores.
        """
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        count = threads or available or os.cpu_count() or 1
        self.threads = count if nodes >= PARALLEL_NODES else 1
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def run(self, kernel: Callable[..., None], begin: int, end: int, *arguments: object) -> None:
        """Call ``kernel(begin, end, *arguments)`` for parts of the range, however it is cut."""
        if self._pool is None:
            kernel(begin, end, *arguments)
            return
        bounds = [begin + (end - begin) * i // self.threads for i in range(self.threads + 1)]
        jobs = [self._pool.submit(kernel, a, b, *arguments) for a, b in pairwise(bounds)]
        for job in jobs:
            job.result()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
