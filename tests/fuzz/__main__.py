"""`python -m tests.fuzz`: attack the command line with hostile inputs, and say what came of it."""

from __future__ import annotations

import argparse
import ctypes
import gc
import getpass
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nova_core.scratch import run_folder

from .campaign import Finding, Input, findings, make, run
from .material import HOSTS, beside, write_hosts, write_material
from .uses import USES

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SSHD = Path(shutil.which("sshd") or "/usr/sbin/sshd")


def main() -> int:
    """Run; exit code 1 when something was found.

    No context is open while children are made: they leave through here.
    """
    asked = _arguments()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    _isolate()
    uses = [
        use
        for use in USES
        if (use.line.startswith(asked.use) if asked.use else use.slow == asked.slow)
    ]
    if not SSHD.exists():
        print(f"there is no {SSHD}: no hosts are attacked")
        uses = [use for use in uses if "hosts.yaml" not in use.files]
    if not uses:
        print(f"no use begins with {asked.use!r}", file=sys.stderr)
        return 2
    place = Path(tempfile.mkdtemp(prefix="nova-fuzz-"))
    begun = time.monotonic()
    _import_everything()
    material = place / "material"
    material.mkdir()
    _write_material(material)
    server, port = _web_server(place)
    helpers = [server, *([_hosts(material)] if SSHD.exists() else [])]
    # Children need not look through what is here already when they end.
    gc.freeze()
    print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)
    numbers = [asked.only] if asked.only is not None else range(asked.count)
    seed = -1 if asked.valid else asked.seed
    if asked.valid:
        numbers = range(len(uses))

    def inputs() -> Iterator[Input]:
        for number in numbers:
            if asked.seconds is None or time.monotonic() - begun < asked.seconds:
                yield make(seed, number, uses, material, place, port)

    found: list[Finding] = []
    codes: Counter[int] = Counter()
    longest, most = 0.0, 0
    for one, ended, kind, detail in run(inputs(), asked.jobs):
        codes[ended.code] += 1
        longest = max(longest, ended.seconds)
        most = max(most, 0 if one.use.slow else ended.peak)
        if asked.valid and not kind and ended.code not in one.use.codes:
            kind, detail = "valid use", f"exit code {ended.code}: {ended.stderr[-500:]}"
        if kind:
            keep = _keep(one, asked.keep, kind, detail)
            found.append(Finding(kind, one.number, one.line, one.what, keep, detail))
            print(f"{kind}: {one.number}: {one.line[:200]}\n    {one.what}\n    {detail}")
            sys.stdout.flush()
        elif asked.verbose:
            last = ended.stderr.strip().rpartition("\n")[2]
            print(f"{ended.code} {ended.seconds:.1f} s, {one.number}: {one.line[:150]}")
            print(f"    {one.what}\n    {last[:300]}")
        for path in (one.folder, *place.glob(f"{one.folder.name}.*")):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    for helper in helpers:
        os.kill(helper, signal.SIGTERM)
        os.waitpid(helper, 0)
    shutil.rmtree(place, ignore_errors=True)
    ran = sum(codes.values())
    told = ", ".join(f"{count} {kind}" for kind, count in findings(found).items()) or "nothing"
    print(
        f"{ran} inputs (seed {asked.seed}) in {time.monotonic() - begun:.0f} s, exit codes "
        f"{dict(sorted(codes.items()))}, the longest {longest:.1f} s, the most memory "
        f"{most >> 20} MiB; found: {told}"
    )
    if found:
        print(f"each with its files and command in {asked.keep}")
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    add = parser.add_argument
    add("--count", type=int, default=2000, help="inputs (%(default)s)")
    add("--seed", type=int, default=0, help="one seed gives the same inputs (%(default)s)")
    add("--only", type=int, help="only the input of this number")
    add("--use", default="", help="only of commands that begin like this")
    add("--slow", action="store_true", help="only commands that take long, such as with Spark")
    add("--valid", action="store_true", help="every command once, with valid files")
    add("--seconds", type=float, help="begin no more after so long")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at once (%(default)s)")
    add("--keep", type=Path, default=Path("fuzz-failures"), help="folder of what fails")
    add("--verbose", action="store_true", help="show every input")
    return parser.parse_args()


def _isolate() -> None:
    """A network of its own, with a loopback alone, where that is allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) == 0:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=False)


def _import_everything() -> None:
    warnings.simplefilter("ignore")
    import pandas  # noqa: F401
    import pyarrow.dataset  # noqa: F401
    import sklearn.manifold  # noqa: F401

    from . import uses

    for _ in uses.commands():
        pass


def _write_material(material: Path) -> None:
    """Make the material here: what it imports and compiles, children need not."""
    from nova_core.cli import cli

    here = Path.cwd()
    os.chdir(material)
    out, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    write_material(material, lambda *words: cli.main([*words], standalone_mode=False))
    sys.stdout.flush()
    os.dup2(out, 1)
    os.chdir(here)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing of interest happens here."""


def _web_server(place: Path) -> tuple[int, int]:
    """Serve the inputs' files on loopback, from a process of its own; its id and port."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    pid = os.fork()
    if pid:
        listener.close()
        return pid, port
    # The server ends with whoever forked it, however that ends.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", port), partial(_Quiet, directory=str(place)), bind_and_activate=False
    )
    server.socket = listener
    try:
        server.serve_forever()
    finally:
        os._exit(0)


def _hosts(material: Path) -> int:
    """Start an sshd for each host of the inventory, from a process of its own; its id."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid:
        os.close(told)
        assert os.read(ready, 1), "the hosts' sshds do not start"
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    beside("")
    beside("nova_testbed")
    from loopback_hosts import sshds

    with sshds(*(host["name"] for host in HOSTS)) as running:
        write_hosts(material, [
            {**host, "address": one.address, "port": one.port, "user": getpass.getuser(),
             "key": str(one.key), "known_hosts": str(one.known_hosts)}
            for host, one in zip(HOSTS, running, strict=True)
        ])  # fmt: skip
        os.write(told, b".")
        while True:
            signal.pause()


def _keep(one: Input, keep: Path, kind: str, detail: str) -> Path:
    """Keep an input's files and the command to repeat it."""
    target = keep / f"{kind.replace(' ', '-')}-{one.folder.name}"
    shutil.rmtree(target, ignore_errors=True)
    keep.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(one.folder), str(target)], check=False)
    for stream in ("run.err", "run.out", "then.err"):
        path = one.folder.with_name(f"{one.folder.name}.{stream}")
        if path.exists():
            shutil.copy(path, target / f"_{stream}")
    text = f"cd {target.resolve()} && {one.line}\n# {one.what}: {detail}\n"
    (target / "_command").write_text(text, errors="surrogateescape")
    return target


if __name__ == "__main__":
    run_folder()
    sys.exit(main())
