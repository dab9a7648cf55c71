"""A benchmark of a size that no machine holds says so at once, before it fills the memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MOST = 1 << 30
# Without a limit, a machine with much memory would go on.
LIMITED = f"""
import json, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_AS, ({8 << 30},) * 2)
command = [sys.executable, "-c", "from nova_core.cli import main; main()", *sys.argv[1:]]
done = subprocess.run(command, capture_output=True, text=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
print(json.dumps([done.returncode, done.stderr, peak]))
"""


@pytest.mark.parametrize("what", ["kernels", "live"])
def test_a_size_beyond_the_memory(what: str) -> None:
    command = [sys.executable, "-c", LIMITED, "bench", what, "--sizes", str(2**31 - 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, said, peak = json.loads(done.stdout)
    assert code == 2 and "Unable to allocate" in said.splitlines()[-1], said
    assert peak < MOST, f"{peak >> 20} MiB"
