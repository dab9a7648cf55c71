"""Submits jobs from Flink's own environment: one JSON command a line in, one answer a line out."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from nova_core.errors import NovaError
from nova_flink.builder import build, remote_environment, settings
from nova_flink.dataflow import Dataflow
from nova_flink.workload import Workload

QUOTED = 300


class _Submitter:
    def __init__(self, host: str, port: int) -> None:
        from pyflink.java_gateway import get_gateway

        self.gateway = get_gateway()
        self.host, self.port = host, port

    def submit(self, command: dict[str, Any]) -> dict[str, Any]:
        """Build and start a job."""
        dataflow = Dataflow.from_json(command["dataflow"])
        workload = Workload.from_json(command["workload"])
        environment = remote_environment(self.gateway, self.host, self.port, settings(workload))
        build(self.gateway, environment, dataflow, workload, command["result_file"])
        client = environment.executeAsync(command["name"])
        return {"job": client.getJobID().toString()}


def _answer(submitter: _Submitter, command: dict[str, Any]) -> dict[str, Any]:
    try:
        return submitter.submit(command)
    except NovaError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": _reason(error)}


def _reason(error: Exception) -> str:
    """The innermost cause of what Java threw, in a line."""
    java = getattr(error, "java_exception", None)
    if java is None:
        # pyflink's own wrapper has Java's stack trace as its text.
        text = str(error) or type(error).__name__
    else:
        while java.getCause() is not None:
            java = java.getCause()
        text = str(java.toString())
    # So has what Flink's REST interface answers.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else lines[0]).removeprefix("Caused by: ")[:QUOTED]


def serve(commands: TextIO, answers: TextIO, host: str, port: int) -> None:
    """Answer commands until there are no more."""
    submitter = _Submitter(host, port)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in commands:
        print(json.dumps(_answer(submitter, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    # Whatever else writes to stdout must not be taken for an answer.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(sys.stdin, answers, sys.argv[1], int(sys.argv[2]))
