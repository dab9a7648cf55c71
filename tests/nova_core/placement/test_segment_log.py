"""Lines are there as a whole or not at all, whatever a disk does."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from largest_file import largest_file

from nova_core.errors import UnwritableError
from nova_core.placement.live.segment_log import SegmentLog


@pytest.mark.parametrize("sync", [False, True])
def test_a_line_fits_or_is_not_there_at_any_size(tmp_path: Path, sync: bool) -> None:
    lines = [b"a" * 20, b"b" * 33, b"c" * 20]
    for limit in range(sum(len(line) + 1 for line in lines) + 2):
        directory = tmp_path / f"{limit}"
        log = SegmentLog(directory, "x-", 0, sync=sync)
        written = []
        for line in lines:
            with largest_file(limit):
                try:
                    log.append(line)
                except UnwritableError as error:
                    assert "File too large" in str(error)
                else:
                    written.append(line)
        assert log.broken is None
        # What was refused has left nothing behind that a later line would be glued to.
        log.append(b"later")
        assert (directory / "x-0.jsonl").read_bytes().splitlines() == [*written, b"later"]
        assert list(log.lines(0)) == [*written, b"later"]
        log.close()
        again = SegmentLog(directory, "x-", 0)
        assert list(again.lines(0)) == [*written, b"later"]
        again.close()


def test_what_cannot_be_cut_back_breaks_it(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, "x-", 0)
    log.append(b"one")
    (segment,) = log._segments
    right, segment.descriptor = segment.descriptor, os.open("/dev/full", os.O_RDWR)
    with pytest.raises(UnwritableError, match="No space left on device"):
        log.append(b"two")
    os.close(segment.descriptor)
    segment.descriptor = right
    for _ in range(2):
        with pytest.raises(UnwritableError, match="nor cut back; nothing is taken until"):
            log.append(b"two")
    assert log.last == 1
    log.close()
    again = SegmentLog(tmp_path, "x-", 0)
    again.append(b"two")
    assert list(again.lines(0)) == [b"one", b"two"]


@pytest.mark.parametrize("failures", [1, 2])
def test_a_line_that_the_disk_does_not_confirm_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    log = SegmentLog(tmp_path, "x-", 0, sync=True)
    log.append(b"one")
    real, left = os.fsync, [failures]

    def fsync(descriptor: int) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UnwritableError, match="Input/output error"):
        log.append(b"two")
    assert (tmp_path / "x-0.jsonl").read_bytes() == b"one\n"
    # Whether cutting it back is on the disk is not known, either, when that fails too.
    assert (log.broken is None) == (failures == 1)


def test_files_begin_and_go(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, "x-", 5)
    for number in range(6, 15):
        log.append(b"%d" % number)
        if number % 3 == 0:
            log.rotate(keep=1)
    assert (log.first, log.last, log.newest) == (9, 14, 2)
    assert list(log.lines(10)) == [b"11", b"12", b"13", b"14"]
    log.cut(11)
    assert list(log.lines(9)) == [b"10", b"11"]
    log.append(b"new")
    log.close()
    again = SegmentLog(tmp_path, "x-", 10)
    assert list(again.lines(9)) == [b"10", b"11", b"new"]
    again.close()
    # Lines that are missing would go unnoticed: what comes before them does not count.
    anew = SegmentLog(tmp_path, "x-", 20)
    assert (anew.first, anew.last) == (20, 20)
    assert [path.name for path in tmp_path.iterdir()] == ["x-20.jsonl"]


def test_a_gap_between_files(tmp_path: Path) -> None:
    (tmp_path / "x-0.jsonl").write_bytes(b"one\ntwo\nthr")
    (tmp_path / "x-3.jsonl").write_bytes(b"four\n")
    log = SegmentLog(tmp_path, "x-", 3)
    assert (log.first, log.last, list(log.lines(3))) == (3, 4, [b"four"])
