from __future__ import annotations

import struct
from pathlib import Path

import pytest

from nova_core.errors import NovaError
from nova_flink import results


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
