"""NebulaStream's programs, which Nova cannot install: tests that need them skip without."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nova_nebulastream.home import HOME, WORKER, NesHome


def need_home() -> NesHome:
    """The home, or skip."""
    home = NesHome.default()
    if home.path is None or not home.complete:
        pytest.skip(f"NebulaStream cannot be installed, and {HOME} names no home of it")
    return home


@contextmanager
def workers(home: NesHome, addresses: Iterable[str], directory: Path) -> Iterator[None]:
    """Workers that listen on loopback addresses."""
    processes = []
    try:
        for address in addresses:
            work = directory / f"worker-{address}"
            work.mkdir()
            command = [str(home.program(WORKER)), f"--grpc={address}:8080"]
            command += [f"--data_address={address}:9090"]
            command += os.environ.get("NOVA_NES_OPTIONS", "").split()
            with (work / "out").open("wb") as out:
                processes.append(subprocess.Popen(command, cwd=work, stdout=out, stderr=out))
        until = time.monotonic() + 30
        for address in addresses:
            while True:
                with suppress(OSError):
                    socket.create_connection((address, 8080), 1).close()
                    break
                assert time.monotonic() < until, f"no worker on {address}"
                time.sleep(0.05)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
