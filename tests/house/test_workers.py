"""What `conftest.py` does for whoever runs tests, tried out on a few elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[2] / "conftest.py"


def outcomes(directory: Path, *command: str, **tests: str) -> dict[str, str]:
    """What became of each test of some files, each run once, on two workers."""
    shutil.copy(CONFTEST, directory)
    for name, text in tests.items():
        (directory / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [*command, sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", "-rA"],
        cwd=directory,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    lines = [line.split() for line in done.stdout.splitlines() if " test_" in line[:12]]
    told = [(words[1], words[0]) for words in lines if words[0] in ("PASSED", "FAILED")]
    assert len(dict(told)) == len(told) and told, done.stdout + done.stderr
    return dict(told)


def test_a_test_that_ends_its_worker_fails_and_the_others_run(tmp_path: Path) -> None:
    ends = "import os\ndef test_1(): pass\ndef test_2(): os._exit(3)\ndef test_3(): pass\n"
    lasts = "def test_1(): pass\ndef test_2(): pass\n"
    # Both workers end at about the same time, and one that comes in place of one ends, too.
    found = outcomes(tmp_path, a=ends, b=ends, c=ends, d=lasts)
    files = ("a", "b", "c")
    assert {test for test, outcome in found.items() if outcome == "FAILED"} == {
        f"test_{name}.py::test_2" for name in files
    }
    assert len(found) == 11


def test_programs_can_be_interrupted_where_the_tests_cannot(tmp_path: Path) -> None:
    # As a script leaves what it runs in the background.
    ignoring = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    interrupts = """
import signal, subprocess
def test_interrupt():
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(5) == -signal.SIGINT
        finally:
            process.kill()
"""
    assert set(outcomes(tmp_path, *ignoring, a=interrupts).values()) == {"PASSED"}
