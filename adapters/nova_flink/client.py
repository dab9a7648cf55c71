"""Submits jobs to a cluster through a process of the engine home's own Python."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import nova_core
import nova_engines
import nova_flink
from nova_core.errors import NovaError
from nova_engines.flow import Flow
from nova_engines.sources import Sources
from nova_flink.home import FlinkHome
from nova_flink.rest import host_and_port

# The client submits few jobs: optimising compilation does not pay off.
JVM = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
START_S = 120.0
SUBMIT_S = 180.0
STOP_S = 10.0
QUOTED = 300


class ClientError(NovaError):
    """A job that cannot be submitted."""


class Client:
    """A process that submits jobs to one cluster; as a context manager it ends on exit.

    Args:
        home: the engine home.
        rest_url: of the cluster's JobManager, e.g. ``http://10.0.0.1:8081``.
        extra_jars: what jobs need beside Nova's operators, e.g. a connector.
    """

    def __init__(
        self, home: FlinkHome, rest_url: str, extra_jars: Sequence[str | Path] = ()
    ) -> None:
        host_and_port(rest_url)
        self._scratch = tempfile.TemporaryDirectory(prefix="nova-flink-client-")
        scratch = Path(self._scratch.name)
        self._log = scratch / "client.log"
        try:
            self._process = self._start(home, scratch, rest_url, extra_jars)
            self._answer(START_S)
        except BaseException:
            self.close()
            raise

    def _start(
        self, home: FlinkHome, scratch: Path, rest_url: str, extra_jars: Sequence[str | Path]
    ) -> subprocess.Popen[bytes]:
        # Flink's Python must find these packages only, not others installed beside them.
        modules = scratch / "modules"
        modules.mkdir()
        for package in (nova_core, nova_engines, nova_flink):
            source = Path(str(package.__file__)).parent
            (modules / source.name).symlink_to(source, target_is_directory=True)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        } | {
            "PYTHONPATH": str(modules),
            "PYTHONDONTWRITEBYTECODE": "1",
            "FLINK_HOME": str(home.flink),
            "FLINK_CONF_DIR": str(home.flink / "conf"),
            "FLINK_LOG_DIR": str(scratch),
            "HADOOP_CLASSPATH": ":".join(map(str, (home.extension_jar, *extra_jars))),
            "JVM_ARGS": f"{JVM} -Djava.io.tmpdir={scratch}",
            "TMPDIR": str(scratch),
        }
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [str(home.python), "-P", "-m", "nova_flink.client_main", rest_url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                # Ctrl-C must reach only the user of the client, who then closes it.
                start_new_session=True,
            )

    def submit(self, flow: Flow, sources: Sources, result_file: str | Path, name: str) -> str:
        """Start a job; return its id. It is accepted then, not yet running.

        Args:
            flow: what runs where.
            sources: where its tuples come from.
            result_file: where the sinks write on their nodes (`Flow.result_files`); replaced if it
                exists.
            name: of the job.

        Raises:
            ClientError: with what Flink or the client says.
        """
        command = {
            "flow": flow.to_json(),
            "sources": sources.to_json(),
            "result_file": str(result_file),
            "name": name,
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ClientError(f"job {name!r}: {self._last_words()}") from error
        answer = self._answer(SUBMIT_S)
        if "error" in answer:
            raise ClientError(f"job {name!r}: {answer['error']}")
        return str(answer["job"])

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None
        until = time.monotonic() + timeout_s
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise ClientError(f"Flink's client does not answer for {timeout_s:g} s")
                part = os.read(out.fileno(), 1 << 16)
                if not part:
                    raise ClientError(self._last_words())
                line += part
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        text = self._log.read_text(errors="replace").strip()
        return f"Flink's client ended: {text[-QUOTED:] or 'it wrote nothing'}"

    def close(self) -> None:
        """End the process; jobs keep running."""
        process = getattr(self, "_process", None)
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        continue
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._scratch.cleanup()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
