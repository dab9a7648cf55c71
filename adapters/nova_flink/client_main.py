"""Submits jobs from Flink's own environment: one JSON command a line in, one answer a line out."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from nova_core.errors import NovaError
from nova_engines.flow import Flow
from nova_engines.sources import Sources
from nova_flink.builder import FlowJob

QUOTED = 300


def _answer(rest_url: str, command: dict[str, Any]) -> dict[str, Any]:
    try:
        flow, sources = Flow.from_json(command["flow"]), Sources.from_json(command["sources"])
        job = FlowJob(flow, sources, rest_url, command["result_file"])
        return {"job": job.submit(command["name"])}
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
    # Answers of Flink's REST interface contain a stack trace, too.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else lines[0]).removeprefix("Caused by: ")[:QUOTED]


def serve(commands: TextIO, answers: TextIO, rest_url: str) -> None:
    """Answer commands until there are no more."""
    from pyflink.java_gateway import get_gateway

    get_gateway()
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in commands:
        answers.write(json.dumps(_answer(rest_url, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Other output to stdout must not be mistaken for an answer.
    with os.fdopen(os.dup(1), "w") as own:
        os.dup2(2, 1)
        serve(sys.stdin, own, sys.argv[1])
