from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_workloads.synth import sensors_for, write_archive
from nova_workloads.synth_rows import IMPOSSIBLE
from nova_workloads.synth_settings import TYPES, Faults, Settings

# Far more of each fault than any real archive has, so that each occurs.
DIRTY = Faults(
    missing=0.05,
    not_a_number=0.05,
    impossible=0.05,
    duplicates=0.1,
    clock_jumps=0.2,
    moved=0.2,
    absent=0.1,
    bad_files=0.2,
)
POSSIBLE = {"pressure": (30_000, 110_000), "temperature": (-90, 60), "humidity": (0, 100)}


def is_number(text: str) -> bool:
    return text not in ("", "nan", "unavailable")


def recount(directory: Path, truth: dict[str, Any]) -> dict[str, Counter[str]]:
    """The faults in an archive, found row by row from the files alone."""
    bad = {entry["file"] for entry in truth["bad_files"]}
    moves = {str(entry["sensor"]): entry["at"] for entry in truth["moved_sensors"]}
    found: dict[str, Counter[str]] = {}
    for path in sorted(directory.glob("*/*.csv*")):
        if str(path.relative_to(directory)) in bad:
            continue
        raw = path.read_bytes()
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        header, *rows = text.decode().splitlines()
        names = header.split(";")
        measured = [name for name in ("pressure", "temperature", "humidity") if name in names]
        day, kind, _, sensor = path.name.partition(".")[0].split("_")
        assert names[6:] == list(TYPES[kind]) and path.parent.name == day
        seen: set[str] = set()
        for row in rows:
            values = dict(zip(names, row.split(";"), strict=True))
            assert values["sensor_id"] == sensor and values["sensor_type"] == kind.upper()

            def count(what: str, *of: str) -> None:
                found.setdefault(what, Counter()).update(["rows", *of])

            count("rows", *measured)
            elsewhere = values["timestamp"] >= moves.get(sensor, "9")
            good = set(measured)
            whole = True
            if row in seen:
                count("duplicate", *measured)
                whole = False
            if not values["timestamp"].startswith(f"{day}T"):
                count("clock_jump", *measured)
                whole = False
            for name in measured:
                low, high = POSSIBLE[name]
                if values[name] == "":
                    count("missing", name)
                elif values[name] in ("nan", "unavailable"):
                    count("not_a_number", name)
                elif not low <= float(values[name]) <= high:
                    count("impossible", name)
                else:
                    continue
                whole = False
                good.discard(name)
            if row in seen or not values["timestamp"].startswith(f"{day}T"):
                good.clear()
            seen.add(row)
            if is_number(values["temperature"]) and "temperature" not in good and good:
                count("beside_impossible_temperature", *good)
                good.clear()
            if elsewhere and good:
                found.setdefault("moved", Counter()).update([*good, *(["rows"] if whole else [])])
            if whole:
                count("clean_rows")
    return found


@pytest.mark.parametrize("compress", [False, True])
def test_truth_counts_what_the_files_hold(tmp_path: Path, compress: bool) -> None:
    made = Settings(
        sensors=60, days=3, interval=1800, faults=DIRTY, compress=compress, seed=compress
    )
    truth = write_archive(tmp_path / "archive", made)
    assert json.loads((tmp_path / "archive/truth.json").read_text()) == json.loads(
        json.dumps(truth)
    )
    found = recount(tmp_path / "archive", truth)
    zero = dict.fromkeys(("rows", "pressure", "temperature", "humidity"), 0)
    for kind, counts in truth["faults"].items():
        assert zero | found[kind] == counts, kind
        assert counts["rows"] > 0
    assert zero | found["rows"] == truth["rows"]
    assert zero | found["moved"] == truth["moved"]
    beside = truth["beside_impossible_temperature"]
    for name in ("pressure", "humidity"):
        assert found["beside_impossible_temperature"][name] == beside[name] > 0
    assert found["clean_rows"]["rows"] == truth["clean"]["rows"]
    written = list((tmp_path / "archive").glob(f"*/*{made.suffix}"))
    files = truth["files"]
    assert len(written) == files["written"] == 180 - files["absent"]
    assert sum(path.stat().st_size for path in written) == files["bytes"]


def test_bad_files_are_bad_and_named(tmp_path: Path) -> None:
    for compress in (False, True):
        directory = tmp_path / str(compress)
        made = Settings(sensors=40, interval=7200, compress=compress, faults=Faults(bad_files=1.0))
        truth = write_archive(directory, made)
        assert truth["rows"]["rows"] == 0
        faults = Counter(entry["fault"] for entry in truth["bad_files"])
        assert set(faults) == {
            "truncated", "html", "other-columns", "binary", "empty", "wrong-compression"
        }  # fmt: skip
        for entry in truth["bad_files"]:
            content = (directory / entry["file"]).read_bytes()
            is_gzip = content.startswith(b"\x1f\x8b")
            match entry["fault"]:
                case "empty":
                    assert content == b""
                case "wrong-compression":
                    assert is_gzip is not compress
                case "truncated" if compress:
                    with pytest.raises(EOFError):
                        gzip.decompress(content)
                case "truncated":
                    header, *_, last = content.decode().splitlines()
                    assert 0 < last.count(";") + 1 < header.count(";") + 1 or ";" not in last
                case "html" | "other-columns":
                    text = gzip.decompress(content) if compress else content
                    assert b"timestamp;pressure" not in text and b"humidity" not in text


def test_sensors_that_move_stand_elsewhere_from_then_on(tmp_path: Path) -> None:
    made = Settings(sensors=12, days=2, interval=3600, faults=Faults.none())
    moving = Settings(**{**vars(made), "faults": Faults(**{**vars(made.faults), "moved": 0.5})})
    truth = write_archive(tmp_path / "a", moving)
    moved = {entry["sensor"]: entry for entry in truth["moved_sensors"]}
    assert 0 < len(moved) < 12
    elsewhere = 0
    for path in sorted((tmp_path / "a").glob("*/*.csv")):
        _, *rows = path.read_text().splitlines()
        for row in rows:
            sensor, _, location, lat, lon, time, *_ = row.split(";")
            entry = moved.get(int(sensor))
            if entry is None:
                continue
            where = entry["to"] if time >= entry["at"] else entry["from"]
            assert (int(location), float(lat), float(lon)) == (
                where["location"], where["lat"], where["lon"]
            )  # fmt: skip
            elsewhere += time >= entry["at"]
            assert abs(entry["to"]["lat"] - entry["from"]["lat"]) > 0.5
    assert elsewhere == truth["moved"]["rows"] > 0
    quiet = write_archive(tmp_path / "b", made)
    assert quiet["moved"]["rows"] == 0
    assert quiet["clean"] == quiet["rows"]


def rows_in(directory: Path) -> Counter[tuple[str, ...]]:
    """All rows, by the columns that their sensor's type has; what else there is, is empty."""
    found: Counter[tuple[str, ...]] = Counter()
    for path in directory.glob("*/*.csv"):
        header, *rows = path.read_text().splitlines()
        names = header.split(";")
        for row in rows:
            values = dict(zip(names, row.split(";"), strict=True))
            own = TYPES[values["sensor_type"].lower()]
            assert all(values[name] == "" for name in names[6:] if name not in own)
            found[(*row.split(";")[:6], *(values[name] for name in own))] += 1
    return found


def test_mixed_files_hold_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_workloads.synth.MIXED_BYTES", 20_000)
    faults = Faults(**{**vars(DIRTY), "bad_files": 0.0})
    truths = [
        write_archive(
            tmp_path / str(mixed),
            Settings(sensors=20, days=2, interval=1800, faults=faults, mixed=mixed),
        )
        for mixed in (False, True)
    ]
    assert rows_in(tmp_path / "True") == rows_in(tmp_path / "False")
    assert truths[0]["faults"] == truths[1]["faults"]
    names = sorted(path.name for path in (tmp_path / "True").glob("*/*.csv"))
    assert names[:2] == ["2025-01-01_mixed_000.csv", "2025-01-01_mixed_001.csv"]
    assert truths[1]["files"]["written"] == len(names) < 20
    with pytest.raises(NovaError, match="mixed archives have none"):
        Settings(sensors=1, mixed=True)


def digest(directory: Path) -> str:
    h = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        h.update(str(path.relative_to(directory)).encode())
        if path.is_file():
            h.update(path.read_bytes())
    return h.hexdigest()


def test_one_seed_gives_one_archive(tmp_path: Path) -> None:
    digests = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        made = Settings(sensors=9, interval=600, faults=DIRTY, compress=True, seed=seed)
        write_archive(tmp_path / name, made)
        digests.append(digest(tmp_path / name))
    assert digests[0] == digests[1] != digests[2]


@settings(max_examples=20, deadline=None)
@given(
    sensors=st.integers(1, 30),
    days=st.integers(1, 3),
    interval=st.integers(600, 43_200),
    types=st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4),
    seed=st.integers(0, 2**40),
)
def test_any_size_adds_up(
    tmp_path_factory: pytest.TempPathFactory,
    sensors: int,
    days: int,
    interval: int,
    types: list[str],
    seed: int,
) -> None:
    made = Settings(
        sensors=sensors, days=days, interval=interval, types=tuple(types), seed=seed, faults=DIRTY
    )
    directory = tmp_path_factory.mktemp("archive") / "a"
    truth = write_archive(directory, made)
    found = recount(directory, truth)
    assert found.get("rows", Counter())["rows"] == truth["rows"]["rows"]
    assert found.get("clean_rows", Counter())["rows"] == truth["clean"]["rows"]
    per_file = 86_400 // interval
    good = truth["files"]["written"] - truth["files"]["bad"]
    assert truth["rows"]["rows"] == good * per_file + truth["faults"]["duplicate"]["rows"]


def test_impossible_values_are_outside_of_what_is_possible() -> None:
    for name, (low, high) in POSSIBLE.items():
        assert all(not low <= value <= high for value in IMPOSSIBLE[name])


def test_size_is_about_what_was_asked(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli, ["data", "synth", str(tmp_path / "a"), "--size", "5MB", "--days", "2", "--json"]
    )
    assert done.exit_code == 0, done.output
    truth = json.loads(done.stdout)
    assert truth["files"]["bytes"] == pytest.approx(5e6, rel=0.06)
    assert truth["settings"]["sensors"] == sensors_for(5_000_000, Settings(1, days=2))


def test_a_size_beyond_any_disk(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli, ["data", "synth", str(tmp_path / "a"), "--sensors", "1", "--size", "9" * 400]
    )
    assert done.exit_code == 2
    assert "an archive has at most 1 PB" in done.output


def test_mixed_by_command(tmp_path: Path) -> None:
    arguments = ["--sensors", "6", "--interval", "3600", "--mixed", "--gzip"]
    done = CliRunner().invoke(cli, ["data", "synth", str(tmp_path / "a"), *arguments])
    assert done.exit_code == 0, done.output
    assert [p.name for p in (tmp_path / "a").glob("*/*")] == ["2025-01-01_mixed_000.csv.gz"]


def test_table_and_clean_archive(tmp_path: Path) -> None:
    arguments = ["--sensors", "6", "--interval", "3600", "--clean", "--duplicates", "0.5"]
    done = CliRunner().invoke(cli, ["data", "synth", str(tmp_path / "a"), *arguments])
    assert done.exit_code == 0, done.output
    truth = json.loads((tmp_path / "a/truth.json").read_text())
    assert {kind for kind, n in truth["faults"].items() if n["rows"]} == {"duplicate"}
    assert f"{truth['rows']['rows']:,}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sensors", "0"], "0 is not in the range"),
        (["--sensors", "1", "--size", "1GB"], "give one of them"),
        (["--size", "a lot"], "'a lot' is no size; expected e.g. 200MB"),
        (["--size", "1XB"], "is no size"),
        (["--types", "bmp280,sds011"], "unknown sensor type 'sds011'; there are bmp280"),
        (["--missing", "1.5"], "1.5 is not in the range"),
        (["--missing", "0.6", "--impossible", "0.6"], "sum to 1 at most"),
        (["--interval", "50000"], "half a day at most"),
        (["--days", "9999999"], "beyond the calendar"),
        (["--start", "yesterday"], "'yesterday' does not match the format"),
    ],
)
def test_bad_arguments(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["data", "synth", str(tmp_path / "a"), *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_never_writes_over_anything(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_text("mine")
    with pytest.raises(NovaError, match="already there"):
        write_archive(tmp_path / "a", Settings(1))
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "file"]


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_archive(tmp_path / "a", Settings(10, interval=3600), interrupt)
    assert list(tmp_path.iterdir()) == []
