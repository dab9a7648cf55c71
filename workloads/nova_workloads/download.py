"""Fetching files over HTTP: politely, resumably, with checksums."""

from __future__ import annotations

import hashlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from nova_core.errors import NovaError

T = TypeVar("T")

MANIFEST = "manifest.jsonl"
PART = ".part"  # of a file that is not complete
VALIDATOR = ".part.validator"  # the server's name of the part's version
CHUNK = 1 << 16
LONGEST_PAUSE = 300.0  # s
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
# Errors of a cut or refused connection.
CUT = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
)


class FetchError(NovaError):
    """A file that could not be fetched."""


class MissingError(FetchError):
    """The server has no such file."""


class _DamagedError(Exception):
    """The received file is not whole; another attempt may help."""


@dataclass(frozen=True)
class Entry:
    """A file that was fetched, a line of the manifest.

    Attributes:
        file: path within the directory.
        url: where it came from.
        sha256: of its content.
        bytes: its size.
        etag: the server's name of this version, or None.
        modified: the server's Last-Modified, or None.
        fetched: when, ISO, UTC.
    """

    file: str
    url: str
    sha256: str
    bytes: int
    etag: str | None
    modified: str | None
    fetched: str


class Manifest:
    """What a directory holds and where it came from: a JSON line per file; the last one counts."""

    def __init__(self, directory: Path) -> None:
        """Read what is there.

        Raises:
            FetchError: for a line that is no manifest entry.
        """
        self.path = directory / MANIFEST
        self.entries: dict[str, Entry] = {}
        if not self.path.exists():
            return
        lines = self.path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                entry = Entry(**json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                # A run that was killed may have cut the last line short.
                if number == len(lines):
                    continue
                raise FetchError(f"{self.path}:{number}: no line of a manifest") from error
            self.entries[entry.file] = entry

    def add(self, entry: Entry) -> None:
        """Note a file."""
        self.entries[entry.file] = entry
        whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("" if whole else "\n") + json.dumps(asdict(entry)) + "\n")


@dataclass
class Fetcher:
    """Requests files from a server, one at a time.

    Attributes:
        per_second: requests at most.
        retries: attempts after the first, for temporary errors: answers 408, 425, 429 and 5xx,
            refused or cut connections, damaged files.
        backoff: seconds before the second attempt; doubles each time. A server's Retry-After counts
            where it is longer.
        timeout: seconds without a byte.
        say: progress callback; gets why an attempt failed.
    """

    per_second: float = 4.0
    retries: int = 5
    backoff: float = 1.0
    timeout: float = 60.0
    say: Callable[[str], None] = lambda _: None
    _last: float = 0.0

    def text(self, url: str) -> str:
        """The text at an address.

        Raises:
            FetchError: when it cannot be fetched; `MissingError` when there is none.
        """

        def attempt() -> str:
            with self._open(url) as answer:
                body: bytes = answer.read()
            return body.decode("utf-8", "replace")

        return self._retried(url, attempt)

    def file(
        self, url: str, path: Path, name: str, check: Callable[[Path], None] | None = None
    ) -> Entry:
        """Fetch a file; an interrupted download is resumed.

        It is named ``PATH.part`` until it is complete.

        Args:
            url: where it is.
            path: where it goes.
            name: its name in the manifest.
            check: raises ValueError for content that is damaged.

        Raises:
            FetchError: when it cannot be fetched whole; `MissingError` when there is none.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        return self._retried(url, lambda: self._attempt(url, path, name, check))

    def changed(self, url: str, entry: Entry) -> bool:
        """Whether the server has, or may have, another version than the one that was fetched."""
        headers = {}
        if entry.etag:
            headers["If-None-Match"] = entry.etag
        elif entry.modified:
            headers["If-Modified-Since"] = entry.modified

        def attempt() -> bool:
            with self._open(url, headers, method="HEAD") as answer:
                length = answer.headers.get("Content-Length")
                answered = answer.headers.get("ETag"), answer.headers.get("Last-Modified")
                same = answered == (entry.etag, entry.modified) and answered != (None, None)
                return not same and (answered != (None, None) or length != str(entry.bytes))

        try:
            return self._retried(url, attempt)
        except _NotModifiedError:
            return False
        except MissingError:
            raise
        except FetchError:
            return True

    # --- one attempt ----------------------------------------------------------------------------

    def _attempt(
        self, url: str, path: Path, name: str, check: Callable[[Path], None] | None
    ) -> Entry:
        part = path.with_name(path.name + PART)
        validator = path.with_name(path.name + VALIDATOR)
        begin = 0
        headers = {}
        if part.exists() and validator.exists():
            begin = part.stat().st_size
        if begin:
            # The two halves fit only if they are of the same version.
            headers = {"Range": f"bytes={begin}-", "If-Range": validator.read_text()}
        try:
            with self._open(url, headers) as answer:
                answered = answer.headers
                if answer.status != http.client.PARTIAL_CONTENT:
                    begin = 0
                elif not answered.get("Content-Range", "").startswith(f"bytes {begin}-"):
                    raise _DamagedError(f"another range came: {answered.get('Content-Range')}")
                etag, modified = answered.get("ETag"), answered.get("Last-Modified")
                version_of = etag if etag and not etag.startswith("W/") else modified
                validator.unlink(missing_ok=True)
                with part.open("r+b" if begin else "wb") as file:
                    file.seek(begin)
                    file.truncate()
                    if version_of:
                        validator.write_text(version_of)
                    expected = answered.get("Content-Length")
                    came = self._copy(answer, file)
                if expected is not None and came != int(expected):
                    raise _DamagedError(f"{came} of {expected} bytes came")
        except _RangeError:
            part.unlink(missing_ok=True)
            raise _DamagedError("the part is longer than the file") from None
        try:
            if check is not None:
                check(part)
        except ValueError as error:
            part.unlink()
            raise _DamagedError(str(error)) from error
        entry = Entry(
            file=name,
            url=url,
            sha256=sha256_of(part),
            bytes=part.stat().st_size,
            etag=etag,
            modified=modified,
            fetched=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        part.replace(path)
        validator.unlink(missing_ok=True)
        return entry

    @staticmethod
    def _copy(answer: Any, file: Any) -> int:
        came = 0
        while block := answer.read1(CHUNK):
            file.write(block)
            came += len(block)
        return came

    @contextmanager
    def _open(
        self, url: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> Iterator[Any]:
        self._wait_for_turn()
        agent = f"nova-placement/{version('nova-placement')} (sensor archive client)"
        request = urllib.request.Request(
            url, headers={"User-Agent": agent, **(headers or {})}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (404, 410):
                    raise MissingError(f"{url}: not there ({error.code})") from error
                if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise _RangeError from error
                if error.code == http.client.NOT_MODIFIED:
                    raise _NotModifiedError from error
                raise

    def _wait_for_turn(self) -> None:
        rest = self._last + 1 / self.per_second - time.monotonic()
        if rest > 0:
            time.sleep(rest)
        self._last = time.monotonic()

    def _retried(self, url: str, attempt: Callable[[], T]) -> T:
        pause = self.backoff
        for left in range(self.retries, -1, -1):
            wait = pause
            try:
                return attempt()
            except urllib.error.HTTPError as error:
                reason = f"{error.code} {error.reason}"
                if error.code not in PASSING:
                    raise FetchError(f"{url}: {reason}") from error
                wait = max(pause, retry_after(error.headers.get("Retry-After")))
            except (*CUT, _DamagedError) as error:
                reason = str(getattr(error, "reason", None) or error) or type(error).__name__
            if left == 0 or wait > LONGEST_PAUSE:
                later = f"; the server asks to wait {wait:.0f} s" if wait > LONGEST_PAUSE else ""
                raise FetchError(f"{url}: {reason}{later}; run again to go on from here")
            self.say(f"{url}: {reason}; again in {wait:.1f} s")
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError("unreachable: the last attempt returns or raises")


class _RangeError(Exception):
    """The server has nothing from there on."""


class _NotModifiedError(Exception):
    """The server has the same version."""


def retry_after(value: str | None) -> float:
    """Seconds a Retry-After header asks for: a number, or a date; 0 for none."""
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked_base(url: str, option: str = "--url") -> str:
    """A base address without a slash at its end.

    Args:
        url: the address.
        option: of the command line that gave it, for errors.

    Raises:
        FetchError: for one that is not http or https.
    """
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.netloc and url.isascii()
    except ValueError:
        # Brackets without an IPv6 address in them.
        right = False
    if not right:
        raise FetchError(f"{option} {url}: expected an address such as https://host/path")
    return url.rstrip("/")
