"""The file of a sink's results of pairs, written by Java and read by Python."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest
from java_results import compiled
from needs import skip_or_fail

from nova_engines import results
from nova_engines.installing import java

BYTES = results.PAIR_BYTES


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled, with nothing but a JDK."""
    return compiled(tmp_path_factory.mktemp("classes"), "WriteResults")


def write(
    classes: Path, file: Path, job: str, count: int, *, end: bool = True, most: int | None = None
) -> str:
    """What Java complains of; nothing where all was well.

    Args:
        classes: compiled.
        file: of the results.
        job: whose they are.
        count: how many are added.
        end: whether no more will come.
        most: bytes the file may have.
    """

    def limited() -> None:
        if most is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    done = subprocess.run(
        # The log of a JVM's performance is a file as well.
        [java(), "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-cp", classes, "WriteResults"]
        + [str(file), job, str(count)]
        + ["end"] * end,
        preexec_fn=limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == bool(done.stderr)
    return done.stderr


def test_results_are_announced(classes: Path, tmp_path: Path) -> None:
    file = tmp_path / "made" / "results"
    # More than the sink keeps in memory.
    assert write(classes, file, "a", 1300) == ""
    found = results.read(file)
    assert found.records.dtype == results.dtype(results.PAIR)
    assert found.records.dtype.itemsize == BYTES
    assert found["instance"].tolist() == list(range(1300))
    assert found.records[7].tolist() == (7, 3, 4, 9, 1, 2, 5, 6, 7, 8, 1.5, -2.5)
    assert (found.announced, found.starts, found.failure) == (1300, 1, None)
    assert found.loss(finished=True) is None


def test_a_job_that_is_started_again_goes_on(classes: Path, tmp_path: Path) -> None:
    file = tmp_path / "results"
    write(classes, file, "a", 5, end=False)
    # It was killed in the midst of a record.
    with file.open("ab") as half:
        half.write(b"x" * 33)
    assert results.read(file).announced is None
    write(classes, file, "a", 3)
    found = results.read(file)
    assert found["instance"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert (found.announced, found.starts, found.truncated_bytes) == (8, 2, 0)


def test_results_of_other_jobs_are_kept(classes: Path, tmp_path: Path) -> None:
    file = tmp_path / "results"
    file.write_bytes(2 * bytes(BYTES))  # nobody knows whose
    os.utime(file, (7, 7))
    write(classes, file, "a", 5)
    write(classes, file, "b", 3, end=False)
    assert (tmp_path / "results.until-7000").stat().st_size == 2 * BYTES
    old = results.read(tmp_path / "results.a")
    assert (len(old), old.announced) == (5, 5)
    new = results.read(file)
    assert (len(new), new.announced) == (3, None)


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("count", [6, 600])
@pytest.mark.parametrize("most", [0, 1, 5 * BYTES, 5 * BYTES + 33])
def test_what_cannot_be_written_is_said(
    classes: Path, tmp_path: Path, end: bool, count: int, most: int
) -> None:
    file = tmp_path / "results"
    told = write(classes, file, "job", count, end=end, most=most)
    assert "results cannot be written: " in told or "File too large" in told
    # Where not even its fields could be written, there are no results.
    found = results.read(file, results.PAIR)
    assert found.announced is None and len(found) <= most // BYTES
    assert found.failure is not None
    assert "the sink could not write its results" in str(found.loss(finished=False))


def test_a_full_disk_is_said(classes: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        skip_or_fail("a small file system needs leave to mount one")
    try:
        file = small / "results"
        assert "No space left on device" in write(classes, file, "job", 600)
        found = results.read(file)
        assert found.failure is not None and found.announced is None
    finally:
        subprocess.run(["umount", str(small)], check=True)
