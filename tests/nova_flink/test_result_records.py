from __future__ import annotations

import struct
from pathlib import Path

import pytest

from nova_core.errors import NovaError
from nova_engines import results


def test_records_are_read_and_a_cut_one_is_counted(tmp_path: Path) -> None:
    record = struct.pack("<4i6q2d", 1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 1.5, -2.5)
    assert len(record) == results.RECORD_BYTES
    path = tmp_path / "results"
    path.write_bytes(2 * record + record[:33])
    found = results.read(path)
    assert len(found) == 2
    assert found.truncated_bytes == 33
    assert found.records[1].tolist() == (1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 1.5, -2.5)
    assert found["arrive_us"].tolist() == [9, 9]


def test_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(NovaError, match="No such file"):
        results.read(tmp_path / "results")


def written(path: Path, count: int, **beside: str) -> results.ResultRecords:
    path.write_bytes(count * bytes(results.RECORD_BYTES))
    for suffix, text in beside.items():
        path.with_name(f"{path.name}.{suffix}").write_text(text)
    return results.read(path)


def test_a_sink_says_how_many_there_are(tmp_path: Path) -> None:
    found = written(tmp_path / "a", 3, job="x\nx\n", end="3\n")
    assert (found.announced, found.starts, found.failure) == (3, 2, None)
    assert found.loss(finished=True) is None
    found = written(tmp_path / "b", 2, end="3\n")
    assert found.loss(finished=True) == "the sink wrote 3 results, 2 are there"
    found = written(tmp_path / "c", 2)
    assert found.loss(finished=False) is None
    assert found.loss(finished=True) == "the sink has not said that its results are complete"
    for failed, why in (("No space left on device\n", "No space left"), ("", "is the disk full?")):
        found = written(tmp_path / "d", 2, failed=failed, end="2\n")
        assert why in str(found.loss(finished=False))
