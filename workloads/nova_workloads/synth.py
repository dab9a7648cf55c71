"""Archives like Sensor.Community's, with every fault of the real one, at any size.

The public archive holds one CSV file per sensor and day, in one directory per day; archives made
here have the same names, columns and spellings. `truth.json` beside the days counts rows and
faults, so that a reader of the archive can be checked against it.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from nova_core import scratch
from nova_core.errors import NovaError
from nova_workloads.synth_rows import (
    KINDS,
    MEASURED,
    MIXED_AS,
    DailyFile,
    Fleet,
    day_files,
    header_of,
    place_of,
)
from nova_workloads.synth_settings import TYPES, Settings

TRUTH = "truth.json"
MIXED_BYTES = 32_000_000

HTML = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n"
    b"<body><center><h1>502 Bad Gateway</h1></center></body></html>\n"
)
OTHER_COLUMNS = (
    b"sensor_id;sensor_type;location;lat;lon;timestamp;P1;durP1;ratioP1;P2;durP2;ratioP2\n"
)


def sensors_for(size: int, settings: Settings) -> int:
    """How many sensors make an archive of about ``size`` bytes, uncompressed."""
    one = replace(settings, sensors=1000).expected_bytes / 1000
    return max(1, round(size / max(one, 1)))


def write_archive(
    directory: Path, settings: Settings, progress: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:
    """Write an archive; it appears under its name when it is complete.

    Args:
        directory: must not exist, or be empty.
        settings: what to make.
        progress: called with the number of written files, now and then.

    Returns:
        the content of ``truth.json``.

    Raises:
        NovaError: when the directory is not empty or cannot be written.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NovaError(f"{directory}: already there; give a new or an empty directory")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with scratch.beside(directory) as staging:
            made = staging / "made"
            made.mkdir()
            truth = _fill(made, settings, progress)
            (made / TRUTH).write_text(json.dumps(truth, indent=2) + "\n")
            made.replace(directory)
    except OSError as error:
        raise NovaError(f"{directory}: cannot be written: {error.strerror or error}") from error
    return truth


def _fill(directory: Path, settings: Settings, progress: Callable[[int], None]) -> dict[str, Any]:
    fleet = Fleet.of(settings)
    counts: Counter[str] = Counter()
    bad: list[dict[str, Any]] = []
    spoil = _Spoiler(settings)
    files = size = 0
    for day in range(settings.days):
        place = directory / (settings.start + timedelta(days=day)).isoformat()
        place.mkdir()
        daily_files = day_files(fleet, settings, day, counts)
        for file in _mixed(daily_files, place.name) if settings.mixed else daily_files:
            path = place / f"{file.name}{settings.suffix}"
            if file.bad:
                content = spoil(file)
                bad.append({"file": f"{place.name}/{path.name}", "fault": file.bad})
            else:
                content = _packed(file.text) if settings.compress else file.text
            path.write_bytes(content)
            files, size = files + 1, size + len(content)
            if settings.mixed or files % 256 == 0:
                progress(files)
    progress(files)
    return _truth(settings, fleet, counts, bad, files, size)


def _mixed(files: Iterable[DailyFile], day: str) -> Iterator[DailyFile]:
    """Combine many sensors' files of a day into a few."""
    lines: list[bytes] = []
    number = rows = size = 0
    header = header_of(TYPES[MIXED_AS])

    def mixed_file() -> DailyFile:
        # A row begins with its line break, so all but the last file's end has one too many.
        text = b"".join(part[:-1] for part in lines) + b"\n"
        return DailyFile(f"{day}_mixed_{number:03}", header, text, "", rows, 0)

    for file in files:
        lines.append(file.lines)
        rows, size = rows + file.rows, size + len(file.lines)
        if size >= MIXED_BYTES:
            yield mixed_file()
            lines, rows, size, number = [], 0, 0, number + 1
    if lines:
        yield mixed_file()


def _packed(text: bytes) -> bytes:
    return gzip.compress(text, 5, mtime=0)


class _Spoiler:
    """Makes a file something else than its name claims."""

    def __init__(self, settings: Settings) -> None:
        self.compress = settings.compress
        self.random = np.random.default_rng([settings.seed, 2])

    def __call__(self, file: DailyFile) -> bytes:
        match file.bad:
            case "truncated":
                whole = _packed(file.text) if self.compress else file.text
                return whole[: 2 * len(whole) // 3] if self.compress else whole[: file.cut]
            case "wrong-compression":
                return file.text if self.compress else _packed(file.text)
            case "binary":
                return self.random.bytes(min(len(file.text), 4096))
            case "empty":
                return b""
            case "html":
                text = HTML
            case _:
                text = OTHER_COLUMNS
        return _packed(text) if self.compress else text


def _truth(
    settings: Settings,
    fleet: Fleet,
    counts: Counter[str],
    bad: list[dict[str, Any]],
    files: int,
    size: int,
) -> dict[str, Any]:
    """Counts of rows and faults. All but ``files`` and ``bad_files`` are of good files only.

    Each count is of rows and, per measured quantity, of values. ``clean`` counts those without any
    of the ``faults``. Of clean values, ``beside_impossible_temperature`` have an impossible
    temperature in their row; of the others, ``moved`` were measured away from the first place.
    """

    def by_value(what: str) -> dict[str, int]:
        return {"rows": counts[what], **{name: counts[f"{what}.{name}"] for name in MEASURED}}

    faults = {kind: by_value(kind) for kind in (*KINDS, "clock_jump")}
    rows = by_value("rows")
    start = datetime.combine(settings.start, time())
    return {
        "settings": {**asdict(settings), "start": settings.start.isoformat()},
        "files": {"written": files, "bad": len(bad), "absent": counts["absent"], "bytes": size},
        "rows": rows,
        "faults": faults,
        "clean": {what: n - sum(f[what] for f in faults.values()) for what, n in rows.items()},
        "beside_impossible_temperature": by_value("hot") | {"temperature": 0},
        "moved": by_value("moved"),
        "moved_sensors": [
            {
                "sensor": int(fleet.ids[sensor]),
                "from": place_of(fleet, sensor, 0),
                "to": place_of(fleet, sensor, 1),
                "at": (start + timedelta(seconds=float(fleet.moves_at[sensor]))).isoformat(),
            }
            for sensor in np.flatnonzero(np.isfinite(fleet.moves_at)).tolist()
        ],
        "bad_files": bad,
    }
