"""Fetching, from a local server that fails in every way."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nova_core.cli import cli
from nova_core.io.packed import check_packed
from nova_workloads import fetch
from nova_workloads.download import (
    Fetcher,
    FetchError,
    Manifest,
    checked_base,
    retry_after,
    sha256_of,
)
from nova_workloads.fetch import SETTLED, Wanted, atlas_files, fetch_all

DAY = "2025-01-01"


def text_of(sensor: int, rows: int = 4000) -> bytes:
    header = "sensor_id;sensor_type;location;lat;lon;timestamp;temperature;humidity\n"
    return (header + f"{sensor};DHT22;1;52.5;13.4;{DAY}T00:00:00;1.5;60\n" * rows).encode()


class Archive(ThreadingHTTPServer):
    """A server with files, and faults that are used up one by one.

    Faults of a path: a status code; ``cut`` sends half of what it announced; ``long`` announces
    more than there is; ``damaged`` sends other bytes of the same length; ``close`` answers nothing;
    ``retry`` is 429 with a Retry-After; ``no-range`` ignores the Range; ``wrong-range`` answers
    with another one.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[int | str]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.etags = True
        self.ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def paths(self, method: str = "GET") -> list[str]:
        return [path for how, path, _ in self.asked if how == method]


class Handler(BaseHTTPRequestHandler):
    server: Archive
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        archive = self.server
        archive.asked.append((self.command, self.path, dict(self.headers)))
        queue = archive.faults.get(self.path, [])
        fault = queue.pop(0) if queue else ""
        if fault == "close":
            self.close_connection = True
            return
        content = archive.files.get(self.path)
        if isinstance(fault, int) or content is None or fault == "retry":
            status = fault if isinstance(fault, int) else 429 if fault else 404
            self.send_response(status)
            if fault == "retry":
                self.send_header("Retry-After", "0.3")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        if archive.etags and self.headers.get("If-None-Match") == etag:
            self.send_response(304)
            self.end_headers()
            return
        begin = 0
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, etag)
        if match and archive.ranges and same and fault != "no-range":
            begin = int(match[1])
            if begin >= len(content):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            told = begin + (7 if fault == "wrong-range" else 0)
            self.send_header("Content-Range", f"bytes {told}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        body = content[begin:]
        if archive.etags:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body) + (50 if fault == "long" else 0)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "damaged":
            body = bytes(255 - byte for byte in body)
        if fault in ("cut", "long"):
            self.close_connection = True
            body = body[: len(body) // 2] if fault == "cut" else body
        self.wfile.write(body)


@pytest.fixture
def archive() -> Iterator[Archive]:
    with Archive() as server:
        files = {
            f"{DAY}_dht22_sensor_{sensor}.csv.gz": gzip.compress(text_of(sensor), mtime=0)
            for sensor in (11, 12, 13)
        } | {
            f"{DAY}_bmp280_sensor_21.csv": text_of(21),
            f"{DAY}_sds011_sensor_31.csv": b"P1",
            f"{DAY}_dht22_sensor_14_indoor.csv": text_of(14),
        }
        for name, content in files.items():
            server.files[f"/{DAY}/{name}"] = content
        links = "".join(f'<a href="{name}">{name}</a>\n' for name in [*files, "../", "other.txt"])
        server.files[f"/{DAY}/"] = f"<html><body><pre>{links}</pre></body></html>".encode()
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher(per_second=1000, retries=3, backoff=0.01, timeout=5)


def file_of(archive: Archive, sensor: int) -> tuple[str, bytes]:
    path = next(p for p in archive.files if f"sensor_{sensor}" in p)
    return path, archive.files[path]


FAULTS: list[list[int | str]] = [
    [],
    [500],
    [503, 502, 429],
    ["close"],
    ["cut"],
    ["cut", "cut", "cut"],
    ["long"],
    ["cut", "no-range"],
    ["cut", "wrong-range"],
    ["retry"],
    ["damaged"],
    [500, "cut", "close"],
]


@pytest.mark.parametrize("etags", [True, False])
@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_a_file_comes_whole_whatever_happens(
    archive: Archive, fetcher: Fetcher, tmp_path: Path, faults: list[int | str], etags: bool
) -> None:
    archive.etags = etags
    path, content = file_of(archive, 11)
    archive.faults[path] = list(faults)
    entry = fetcher.file(archive.url + path, tmp_path / "d" / "f.gz", "d/f.gz", check_packed)
    assert (tmp_path / "d" / "f.gz").read_bytes() == content
    assert entry.sha256 == hashlib.sha256(content).hexdigest() and entry.bytes == len(content)
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["f.gz"]
    assert archive.faults[path] == []
    ranges = [headers["Range"] for _, _, headers in archive.asked if "Range" in headers]
    # Halves are put together only where the server can tell versions apart.
    assert bool(ranges) is (etags and ("cut" in faults or "long" in faults))


@pytest.mark.parametrize("fault", [500, "cut", "close", "long", "damaged"])
def test_gives_up_and_goes_on_in_the_next_run(
    archive: Archive, fetcher: Fetcher, tmp_path: Path, fault: int | str
) -> None:
    path, content = file_of(archive, 11)
    archive.faults[path] = [fault] * 4
    url = archive.url + path
    with pytest.raises(FetchError, match="run again to go on") as caught:
        fetcher.file(url, tmp_path / "f.gz", "f.gz", check_packed)
    assert url in str(caught.value) and len(archive.paths()) == 4
    assert not (tmp_path / "f.gz").exists()
    archive.asked.clear()
    fetcher.file(url, tmp_path / "f.gz", "f.gz", check_packed)
    assert (tmp_path / "f.gz").read_bytes() == content
    if fault == "cut":
        (_, _, headers) = archive.asked[0]
        assert int(headers["Range"][6:-1]) > len(content) // 2


def test_a_file_that_changed_meanwhile_is_not_mixed(
    archive: Archive, fetcher: Fetcher, tmp_path: Path
) -> None:
    path, _ = file_of(archive, 21)
    archive.faults[path] = ["cut"] * 4
    with pytest.raises(FetchError):
        fetcher.file(archive.url + path, tmp_path / "f.csv", "f.csv")
    archive.files[path] = text_of(99, rows=5000)
    fetcher.file(archive.url + path, tmp_path / "f.csv", "f.csv")
    assert (tmp_path / "f.csv").read_bytes() == text_of(99, rows=5000)
    archive.faults[path] = ["cut"] * 4
    with pytest.raises(FetchError):
        fetcher.file(archive.url + path, tmp_path / "g.csv", "g.csv")
    archive.files[path] = b"short"
    fetcher.file(archive.url + path, tmp_path / "g.csv", "g.csv")
    assert (tmp_path / "g.csv").read_bytes() == b"short"


def test_refusals_are_not_repeated(archive: Archive, fetcher: Fetcher, tmp_path: Path) -> None:
    path, _ = file_of(archive, 11)
    archive.faults[path] = [403]
    with pytest.raises(FetchError, match="403"):
        fetcher.file(archive.url + path, tmp_path / "f", "f")
    with pytest.raises(FetchError, match="not there"):
        fetcher.file(archive.url + "/none", tmp_path / "f", "f")
    assert len(archive.asked) == 2


def test_waits_as_asked_and_no_faster_than_allowed(archive: Archive, tmp_path: Path) -> None:
    path, _ = file_of(archive, 21)
    archive.faults[path] = ["retry"]
    slow = Fetcher(per_second=1000, retries=1, backoff=0.001)
    begin = time.monotonic()
    slow.file(archive.url + path, tmp_path / "f", "f")
    assert time.monotonic() - begin >= 0.3
    polite = Fetcher(per_second=20)
    begin = time.monotonic()
    for _ in range(5):
        polite.text(archive.url + path)
    assert time.monotonic() - begin >= 4 / 20
    assert all("nova-placement/" in headers["User-Agent"] for _, _, headers in archive.asked)


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after("2.5") == 2.5
    assert retry_after(None) == retry_after("-3") == retry_after("soon") == 0
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 95 < retry_after(later) <= 100
    assert retry_after("Wed, 01 Jan 2020 00:00:00 GMT") == 0


def run(archive: Archive, directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        cli,
        ["data", "fetch", "sensor-community", str(directory), "--url", archive.url, "--api-url",
         archive.url, "--from", DAY, "--per-second", "1000", *arguments],
    )  # fmt: skip


def test_command_fetches_what_was_chosen(archive: Archive, tmp_path: Path) -> None:
    done = run(archive, tmp_path, "--sensors", "11,14,21,31,99", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["fetched"] == 3
    place = tmp_path / DAY
    names = sorted(path.name for path in place.iterdir())
    assert names == [
        f"{DAY}_bmp280_sensor_21.csv",
        f"{DAY}_dht22_sensor_11.csv.gz",
        f"{DAY}_dht22_sensor_14_indoor.csv",
    ]
    for line in (tmp_path / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        assert sha256_of(tmp_path / entry["file"]) == entry["sha256"]
        assert entry["etag"] and entry["url"].startswith(archive.url)
    archive.asked.clear()
    done = run(archive, tmp_path, "--everything", "--types", "dht22")
    assert done.exit_code == 0, done.output
    assert [path.rpartition("_")[2] for path in archive.paths()[1:]] == ["12.csv.gz", "13.csv.gz"]


def test_a_box_asks_which_sensors_are_there(archive: Archive, tmp_path: Path) -> None:
    rows = [{"sensor": {"id": n}, "location": {}} for n in (12, 13, 77)]
    archive.files["/airrohr/v1/filter/box=52.3,13,52.7,13.8"] = json.dumps(rows).encode()
    done = run(archive, tmp_path, "--bbox", "52.3,13.0,52.7,13.8", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["fetched"] == 2
    archive.files["/airrohr/v1/filter/box=1,1,2,2"] = b"[]"
    assert "no sensor there is on" in run(archive, tmp_path, "--bbox", "1,1,2,2").stderr
    for answer in (b"<html>", b"[" * 100_000):
        archive.files["/airrohr/v1/filter/box=1,1,2,3"] = answer
        assert "no list of sensors came" in run(archive, tmp_path, "--bbox", "1,1,2,3").stderr


def test_past_years_are_one_level_down_and_missing_days_are_told(
    archive: Archive, tmp_path: Path
) -> None:
    for path in [path for path in archive.files if path.startswith(f"/{DAY}/")]:
        archive.files[f"/2025{path}"] = archive.files.pop(path)
    done = run(archive, tmp_path, "--to", "2025-01-02", "--sensors", "21", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["fetched"] == 1 and answer["missing"] == ["2025-01-02"]
    assert "not in the archive: 2025-01-02" in done.stderr


def test_damage_on_disk_is_found_and_mended(archive: Archive, tmp_path: Path) -> None:
    assert run(archive, tmp_path, "--sensors", "11,21").exit_code == 0
    path = tmp_path / DAY / f"{DAY}_bmp280_sensor_21.csv"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    kept = json.loads(run(archive, tmp_path, "--sensors", "11,21", "--json").stdout)
    assert kept["kept"] == 2
    mended = json.loads(run(archive, tmp_path, "--sensors", "11,21", "--verify", "--json").stdout)
    assert (mended["kept"], mended["fetched"]) == (1, 1)
    assert path.read_bytes() == content
    path.write_bytes(content[:100])
    assert json.loads(run(archive, tmp_path, "--sensors", "21", "--json").stdout)["fetched"] == 1


def test_recent_files_are_asked_for_again(
    archive: Archive, fetcher: Fetcher, tmp_path: Path
) -> None:
    today = datetime.now(UTC).date()
    path = f"/{today}/{today}_dht22_sensor_1.csv"
    archive.files[path] = b"morning"
    wanted = [Wanted(archive.url + path, path[1:], settled=False)]
    for etags in (True, False):
        archive.etags = etags
        archive.files[path] = b"morning"
        assert fetch_all(wanted, tmp_path, fetcher).fetched == 1
        assert fetch_all(wanted, tmp_path, fetcher).kept == 1
        archive.files[path] = b"evening and more"
        assert fetch_all(wanted, tmp_path, fetcher).fetched == 1
        assert (tmp_path / path[1:]).read_bytes() == b"evening and more"


def test_gives_up_when_nothing_works(archive: Archive, fetcher: Fetcher, tmp_path: Path) -> None:
    fetcher.retries = 0
    wanted = [Wanted(f"{archive.url}/{n}", str(n)) for n in range(10)]
    for one in wanted:
        archive.faults[f"/{one.file}"] = [500]
    outcome = fetch_all(wanted, tmp_path, fetcher)
    assert len(archive.asked) == 3
    assert outcome.failed[-1] == "3 in a row: the rest was not tried"


def test_failures_end_with_exit_code_2(archive: Archive, tmp_path: Path) -> None:
    path, _ = file_of(archive, 11)
    archive.faults[path] = [500]
    done = run(archive, tmp_path, "--sensors", "11,12", "--retries", "0")
    assert done.exit_code == 2
    assert "500 Internal Server Error; run again to go on from here" in done.stderr
    assert run(archive, tmp_path, "--sensors", "11,12").exit_code == 0


def test_manifest_survives_a_torn_line(tmp_path: Path, archive: Archive, fetcher: Fetcher) -> None:
    path, _ = file_of(archive, 21)
    wanted = [Wanted(archive.url + path, "a.csv")]
    fetch_all(wanted, tmp_path, fetcher)
    with (tmp_path / "manifest.jsonl").open("a") as file:
        file.write('{"file": "b.csv", "ur')
    assert list(Manifest(tmp_path).entries) == ["a.csv"]
    (tmp_path / "a.csv").unlink()
    fetch_all(wanted, tmp_path, fetcher)
    assert (tmp_path / "manifest.jsonl").read_text().count("\n") == 3
    with pytest.raises(FetchError, match=r"manifest.jsonl:2: no line of a manifest"):
        Manifest(tmp_path)


def atlas_path(measurement: int, day: date, probes: str = "") -> str:
    begin = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    query = f"start={begin}&stop={begin + 86_399}&format=txt{probes}"
    return f"/api/v2/measurements/{measurement}/results/?{query}"


def test_atlas_results_become_lines(archive: Archive, tmp_path: Path) -> None:
    rows = [{"prb_id": n, "timestamp": 1, "type": "ping", "avg": 1.5 * n} for n in range(3)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    first, second = date(2025, 1, 1), date(2025, 1, 2)
    probes = "&probe_ids=1%2C2"
    archive.files[atlas_path(7, first, probes)] = lines.encode()
    archive.files[atlas_path(7, second, probes)] = json.dumps(rows, indent=2).encode()
    archive.files[atlas_path(8, first, probes)] = b""
    archive.files[atlas_path(8, second, probes)] = b"[]"
    done = CliRunner().invoke(
        cli,
        ["data", "fetch", "ripe-atlas", str(tmp_path), "--url", archive.url, "--measurement", "7,8",
         "--from", "2025-01-01", "--to", "2025-01-02", "--probes", "1,2", "--per-second", "1000",
         "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["fetched"] == 4
    for day in (first, second):
        path = tmp_path / "7" / f"ripe-atlas-7-{day}.jsonl"
        assert [json.loads(line) for line in path.read_text().splitlines()] == rows
        assert (tmp_path / "8" / f"ripe-atlas-8-{day}.jsonl").read_bytes() == b""
    entries = Manifest(tmp_path).entries
    assert all(sha256_of(tmp_path / name) == entry.sha256 for name, entry in entries.items())


@pytest.mark.parametrize("answer", [b'{"error": "nothing for you"}', b"[" * 100_000])
def test_what_is_no_result_is_refused(
    archive: Archive, fetcher: Fetcher, tmp_path: Path, answer: bytes
) -> None:
    day = date(2025, 1, 1)
    archive.files[atlas_path(7, day)] = answer
    wanted = list(atlas_files([7], day, day, day + SETTLED, url=archive.url))
    assert wanted[0].settled
    outcome = fetch_all(wanted, tmp_path, fetcher, check=fetch.as_lines)
    assert "no measurement results" in outcome.failed[0]
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --sensors, --bbox or --everything"),
        (["--sensors", "1", "--everything"], "one of them"),
        (["--sensors", "1,x"], "expected whole numbers such as 12,34"),
        (["--bbox", "1,2,3"], "expected south,west,north,east"),
        (["--bbox", "50,10,40,20"], "expected south,west,north,east"),
        (["--sensors", "1", "--to", "2024-12-31"], "--to 2024-12-31: before --from 2025-01-01"),
        (["--sensors", "1", "--url", "ftp://host"], "expected an address such as https://"),
        (["--sensors", "1", "--url", "https://host/é"], "expected an address such as https://"),
        (["--sensors", "1", "--url", "https://[red]"], "expected an address such as https://"),
        (
            ["--sensors", "1", "--api-url", "ftp://host"],
            "--api-url ftp://host: expected",
        ),
        (["--sensors", "1", "--to", "tomorrow"], "does not match the format"),
    ],
)
def test_bad_arguments(
    archive: Archive, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run(archive, tmp_path / "new", *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert not (tmp_path / "new").exists() and archive.asked == []


def test_a_base_address_has_no_slash_at_its_end() -> None:
    assert checked_base("https://host/path/") == "https://host/path"
