"""Reading what sinks of queries write, also while they write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_core.errors import NovaError
from nova_engines.query_results import read_rows

LINE = b'[5,1,2,3,4,6,"\xc3\xa4"]\n'


def test_a_file_that_is_being_written_has_whole_lines_only(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    # The last line ends within a letter; the end was begun, and holds nothing yet.
    file.write_bytes(LINE + LINE[:-5])
    (tmp_path / "rows.end").write_bytes(b"")
    read = read_rows(file)
    assert read.rows == [(5, "ä")]
    assert read.arrive_us == [6]
    assert not read.complete


def test_the_end_announces_how_many_there_are(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(LINE * 2)
    (tmp_path / "rows.end").write_text("2\n")
    assert read_rows(file).complete
    (tmp_path / "rows.end").write_text("3\n")
    with pytest.raises(NovaError, match="2 results: expected 3"):
        read_rows(file)


@pytest.mark.parametrize("line", [b"7\n", b"[1]\n", b"{\n", b"\xff\n"])
def test_what_is_no_result_is_named(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "rows"
    file.write_bytes(LINE + line)
    with pytest.raises(NovaError, match="rows: line 2: no result"):
        read_rows(file)
