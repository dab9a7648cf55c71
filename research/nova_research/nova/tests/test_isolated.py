"""Limits of processes that measure."""

from __future__ import annotations

import resource
import subprocess
import sys


def test_a_memory_limit_from_outside_stays() -> None:
    outside = 8 << 30
    code = (
        "import resource; from nova_research.nova.isolated import _limit_memory; "
        "_limit_memory(1000.0); print(resource.getrlimit(resource.RLIMIT_AS)[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (outside, outside)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == outside
