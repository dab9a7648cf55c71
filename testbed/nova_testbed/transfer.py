"""Copying files to and from a host: rsync where both have it and it pays, tar otherwise."""

from __future__ import annotations

import io
import secrets
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nova_core import scratch
from nova_testbed.connection import CONNECT_SECONDS, HostError, ssh_options

if TYPE_CHECKING:
    from nova_testbed.host import Host

# rsync opens a connection of its own, which does not pay for a small file.
RSYNC_BYTES = 1 << 20
BLOCK = 1 << 18


def put(host: Host, local: str | Path, remote: str, timeout: float | None, root: bool) -> None:
    """See `nova_testbed.host.Host.put`."""
    source = Path(local)
    if not source.exists():
        raise HostError(host.name, f"put {source}: no such file or directory here")
    what = f"put {source} to {remote}"
    target = PurePosixPath(remote)
    if _rsync_pays(host, _size(source)):
        parent = shlex.quote(str(target.parent))
        _output(host, what, f"mkdir -p {parent}", timeout, root)
        place = _remote_place(host, remote)
        if source.is_dir():
            _rsync(host, what, [f"{source}/", f"{place}/"], timeout, root)
        else:
            _rsync(host, what, [str(source), place], timeout, root)
        return
    temporary = f"{target.parent / ('.nova-' + secrets.token_hex(4))}"
    script = PUT_DIRECTORY if source.is_dir() else PUT_FILE
    command = script.format(t=shlex.quote(temporary), r=shlex.quote(remote))

    def feed(write: Callable[[bytes], None]) -> None:
        with tarfile.open(fileobj=_Writer(write), mode="w|", bufsize=BLOCK) as archive:
            if source.is_dir():
                archive.add(source, arcname=".")
            else:
                archive.add(source.resolve(), arcname="file")

    try:
        code, errors, _ = host.stream(command, feed, _ignore, timeout, root)
    except OSError as error:
        raise HostError(host.name, f"{what}: {error.filename}: {error.strerror}") from None
    _checked(host, what, code, errors)


def get(host: Host, remote: str, local: str | Path, timeout: float | None, root: bool) -> None:
    """See `nova_testbed.host.Host.get`."""
    target = Path(local)
    what = f"get {remote} to {target}"
    kind = KIND.format(r=shlex.quote(remote))
    name, size = _output(host, what, kind, timeout, root).split()
    if target.is_dir() and name == "file":
        raise HostError(host.name, f"{what}: {target} is a directory here; name the file in it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if _rsync_pays(host, int(size)):
            place = _remote_place(host, remote)
            ends = [f"{place}/", f"{target}/"] if name == "directory" else [place, str(target)]
            _rsync(host, what, ends, timeout, root)
        else:
            _get_by_tar(host, what, remote, target, name == "directory", timeout, root)
    except OSError as error:
        raise HostError(host.name, f"{what}: {error.strerror or error}") from None


# --- tar ----------------------------------------------------------------------------------------

TAR = "tar -x --no-same-owner -p -f - -C"
PUT_FILE = (
    't={t} r={r}; trap \'rm -rf "$t"\' EXIT; mkdir -p "$t" && ' + TAR + ' "$t" && '
    '{{ [ ! -d "$r" ] || {{ echo "$r is a directory there; name the file in it" >&2; false; }}; }}'
    ' && mv -f "$t/file" "$r"'
)
PUT_DIRECTORY = (
    't={t} r={r}; if [ -e "$r" ]; then ' + TAR + ' "$r"; else '
    'trap \'rm -rf "$t"\' EXIT; mkdir -p "$t" && ' + TAR + ' "$t" && mv "$t" "$r"; fi'
)
KIND = (
    'r={r}; if [ -d "$r" ]; then echo directory $(du -sb "$r" | cut -f1); elif [ -e "$r" ]; then '
    'echo file $(wc -c <"$r"); else echo "no such file or directory there" >&2; false; fi'
)


# Messages of tar and rsync when a disk is full.
FULL = ("No space left on device", "Wrote only", "Disk quota exceeded")


class _Writer(io.RawIOBase):
    """A stream that passes tarfile's output on."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._write(data)
        return len(data)


def _get_by_tar(
    host: Host,
    what: str,
    remote: str,
    target: Path,
    directory: bool,
    timeout: float | None,
    root: bool,
) -> None:
    path = PurePosixPath(remote)
    where, entry = (remote, ".") if directory else (str(path.parent), path.name)
    follow = "" if directory else "-h "
    command = f"tar -c {follow}-f - -C {shlex.quote(where)} -- {shlex.quote(entry)}"
    with scratch.beside(target) as place:
        with tempfile.TemporaryFile(dir=place) as spool:
            code, errors, _ = host.stream(command, None, spool.write, timeout, root)
            _checked(host, what, code, errors)
            spool.seek(0)
            # This tar keeps inside the directory whatever a host sends; tarfile does so only since
            # Python 3.11.4.
            into = target if directory else place
            into.mkdir(exist_ok=True)
            unpack = ["tar", "-x", "--no-same-owner", "-f", "-", "-C", str(into)]
            result = subprocess.run(unpack, stdin=spool, stderr=subprocess.PIPE, text=True)
            if result.returncode:
                why = result.stderr.strip().partition("\n")[0]
                raise HostError(host.name, f"{what}: here: {why}")
        if not directory:
            (place / path.name).replace(target)


# --- rsync --------------------------------------------------------------------------------------


def _rsync_pays(host: Host, size: int) -> bool:
    if size < RSYNC_BYTES or shutil.which("rsync") is None or shutil.which("ssh") is None:
        return False
    return "rsync" in host.programs


def _remote_place(host: Host, remote: str) -> str:
    address = f"[{host.spec.address}]" if ":" in host.spec.address else host.spec.address
    return f"{host.spec.user}@{address}:{remote}"


def _rsync(host: Host, what: str, ends: list[str], timeout: float | None, root: bool) -> None:
    ssh = ["ssh", *ssh_options(host.spec), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]
    ssh += ["-o", f"ConnectTimeout={CONNECT_SECONDS:.0f}"]
    # Copy the content of a single file, not a symbolic link to it.
    archive = "-a" if ends[0].endswith("/") else "-aL"
    command = ["rsync", archive, "--no-owner", "--no-group", "-s", "-e", shlex.join(ssh)]
    if root and not host.is_root:
        command += ["--rsync-path", "sudo -n rsync"]
    process = subprocess.Popen(
        [*command, *ends],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    begin = time.monotonic()
    try:
        while True:
            try:
                _, errors = process.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                host.go_on(what, None if timeout is None else begin + timeout)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    _checked(host, what, process.returncode, errors)


# --- both ---------------------------------------------------------------------------------------


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(entry.lstat().st_size for entry in path.rglob("*") if not entry.is_symlink())


def _output(host: Host, what: str, command: str, timeout: float | None, root: bool) -> str:
    """The output of a command that a transfer needs; errors as of `_checked`."""
    result = host.run(command, timeout=timeout, root=root, check=False)
    _checked(host, what, result.returncode, result.stderr.encode())
    return result.stdout


def _checked(host: Host, what: str, code: int, errors: bytes) -> None:
    """Check that a transfer succeeded.

    Raises:
        HostError: when it failed, with the reason.
    """
    if code == 0:
        return
    text = errors.decode(errors="replace").strip()
    lines = [line for line in text.splitlines() if line.strip()] or [f"ended with {code}"]
    if any(sign in text for sign in FULL):
        raise HostError(
            host.name, f"{what}: the disk there is full; free some space (df -h) and try again"
        )
    raise HostError(host.name, f"{what}: {lines[0].strip()}")


def _ignore(_: bytes) -> None:
    pass
