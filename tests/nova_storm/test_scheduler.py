"""The scheduler in nimbus, on clusters as nimbus makes them: `java/SchedulerCheck.java`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from needs_storm import require

from nova_engines.compiling import compiler
from nova_engines.installing import java

pytestmark = pytest.mark.e2e
CASES = 13


def test_scheduler(tmp_path: Path) -> None:
    home = require()
    source = Path(__file__).parent / "java" / "SchedulerCheck.java"
    jars = ":".join(map(str, (*home.jars, home.extension_jar)))
    quick = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
    subprocess.run(
        [compiler("Storm"), *quick, "-proc:none", "-cp", jars, "-d", tmp_path, source], check=True
    )
    done = subprocess.run(
        [java("Storm"), "-XX:TieredStopAtLevel=1", "-cp", f"{jars}:{tmp_path}", "SchedulerCheck"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok ", "FAILED "))]
    assert [line for line in lines if line.startswith("FAILED")] == [], done.stdout[-3000:]
    assert len(lines) == CASES, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0
    # What could not be placed is an error in the log, with the reason.
    assert "Topology t is NOT PLACED by its plan: node hill has no supervisor" in done.stdout
