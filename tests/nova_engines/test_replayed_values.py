"""Sources of readings that take orders: Java's side, with the Python that orders."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from java_results import compiled

from nova_engines.installing import java

# Event times, ms; the last reading of all is of another source.
TIMES, LAST_MS = (1000, 1100, 1100, 1250, 1500, 2100), 2600
START_MS, SPEED = 5_000, 2.0


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("classes"), "RunReplay")


class Replayed:
    """A source, at times that the test says: ms of event time."""

    def __init__(self, classes: Path, directory: Path, *, ordered: bool) -> None:
        readings = directory / "readings"
        texts = [b"x" * number for number in range(len(TIMES))]
        readings.write_bytes(
            b"".join(
                struct.pack("<qqi", at, number, len(text)) + text
                for number, (at, text) in enumerate(zip(TIMES, texts, strict=True))
            )
        )
        self.orders = directory / "orders"
        (self.orders / "job").mkdir(parents=True)
        facts = [str(readings), str(TIMES[0]), str(START_MS), str(SPEED), str(LAST_MS)]
        facts += [str(self.orders)] if ordered else []
        command = [java(), "-XX:TieredStopAtLevel=1", "-cp", str(classes), "RunReplay", *facts]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def at(self, event_ms: int) -> str:
        """What it does then; it looks for orders every 200 ms."""
        assert self._process.stdin is not None and self._process.stdout is not None
        now_us = round(1000 * (START_MS + (event_ms - TIMES[0]) / SPEED))
        self._process.stdin.write(f"{now_us}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture
def source(classes: Path, tmp_path: Path) -> Iterator[Replayed]:
    made = Replayed(classes, tmp_path, ordered=True)
    yield made
    made.close()


def order(source: Replayed, number: int, begin: int, end: int | None = None, **more: bool) -> None:
    """As `nova_engines.source_orders.tell` writes it."""
    lines = [f"order={number}", f"begin={begin}", *([] if end is None else [f"end={end}"])]
    lines += [f"{name}=true" for name in more]
    (source.orders / "job" / "3").write_text("".join(f"{line}\n" for line in lines))


def answer(source: Replayed) -> str:
    return (source.orders / "job" / "3.answer").read_text().strip()


def test_without_orders_it_ends_with_its_readings(classes: Path, tmp_path: Path) -> None:
    source = Replayed(classes, tmp_path, ordered=False)
    assert source.at(990) == "mark=899"
    assert source.at(1240) == "0@1000 1@1100 2@1100 mark=1199"
    assert source.at(1250) == "3@1250 mark=null"
    assert source.at(1490) == "mark=1399"
    assert source.at(9000) == "4@1500 5@2100 end"
    source.close()


def test_it_begins_and_ends_as_it_is_told(source: Replayed) -> None:
    assert source.at(700) == "waits"
    order(source, 1, begin=1100)
    # Readings have the numbers that they would have had.
    assert source.at(1200) == "1@1100 2@1100 mark=1199"
    assert answer(source) == "1 ok"
    noted = (source.orders / "3.arrived").read_text().split()
    assert noted == ["3.arrived", "3", str(START_MS + 100)]
    # That is too late, and changes nothing.
    order(source, 2, begin=1100, end=1100)
    assert source.at(1400) == "3@1250 mark=1399"
    assert answer(source) == "2 late 1100"
    # It waits at an end that is not final, and goes on when that is taken back.
    order(source, 3, begin=1100, end=1500)
    assert source.at(1700) == "mark=1499"
    assert answer(source) == "3 ok"
    order(source, 4, begin=1100)
    assert source.at(1900) == "4@1500 mark=1899"
    order(source, 5, begin=1100, end=2000, committed=True)
    assert source.at(2150) == "end"


def test_it_answers_until_all_sources_end(source: Replayed) -> None:
    order(source, 1, begin=0)
    every = " ".join(f"{number}@{at}" for number, at in enumerate(TIMES))
    assert source.at(2300) == f"{every} mark=2299"
    assert source.at(LAST_MS) == "mark=2599"
    assert source.at(LAST_MS + 2) == "end"


def test_an_end_behind_the_last_reading(source: Replayed) -> None:
    order(source, 1, begin=1600)
    assert source.at(2300) == "5@2100 mark=2299"
    order(source, 2, begin=1600, end=3000)
    assert source.at(2550) == "mark=2499"
    assert source.at(2900) == "mark=2899"
    order(source, 3, begin=1600, end=3000, committed=True)
    assert source.at(3150) == "end"
