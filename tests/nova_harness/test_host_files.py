"""Orders through files of hosts, whose shell is this machine's."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nova_core.errors import NovaError
from nova_engines.source_orders import Files, LocalFiles
from nova_harness.engines.host_files import HostFiles


class Shell:
    def run(
        self, command: str, *, stdin: bytes = b"", timeout: float, check: bool = True
    ) -> SimpleNamespace:
        done = subprocess.run(
            ["sh", "-c", command], input=stdin, capture_output=True, timeout=timeout, check=False
        )
        if check and done.returncode:
            raise NovaError(done.stderr.decode())
        return SimpleNamespace(stdout=done.stdout.decode(), returncode=done.returncode)


def of_host() -> Files:
    hosts: Any = {"left": Shell()}
    return HostFiles(hosts)


@pytest.mark.parametrize("files", [of_host, LocalFiles])
class TestAsk:
    def test_an_answer_that_comes_later(self, files: Callable[[], Files], tmp_path: Path) -> None:
        path = tmp_path / "it's new" / "0"

        def source() -> None:
            while not path.exists():
                time.sleep(0.01)
            answer = path.with_name("0.answer")
            answer.write_text("6 ok")
            time.sleep(0.2)
            answer.write_text(f"7 late 12 {path.read_text()}")

        answering = threading.Thread(target=source)
        answering.start()
        words = files().ask("left", str(path), "begin=5\n", 7, 20)
        answering.join()
        assert words == ["7", "late", "12", "begin=5"]

    def test_no_answer(self, files: Callable[[], Files], tmp_path: Path) -> None:
        (tmp_path / "0.answer").write_text("70 ok\n")
        begun = time.monotonic()
        assert files().ask("left", str(tmp_path / "0"), "x\n", 7, 0.3) is None
        assert time.monotonic() - begun >= 0.3
        assert (tmp_path / "0").read_text() == "x\n"

    def test_no_room(self, files: Callable[[], Files], tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(NovaError, match="file"):
            files().ask("left", str(tmp_path / "file" / "0"), "x\n", 7, 5)
