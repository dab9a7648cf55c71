"""Moves any user's job to another placement, with its state: stop, pin again, restore."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nova_core.errors import NovaError
from nova_engines.verification import Verification
from nova_flink import own_jobs
from nova_flink.rest import ENDED, POLL_S, FlinkError, Rest

CONFIGURATION = "config.yaml"
SUBMIT_S = 600.0
QUOTED = 300
_ID = re.compile(r"\b[0-9a-f]{32}\b")
RUNNING = ("RUNNING", "FINISHED")


@dataclass(frozen=True)
class Moved:
    """The result of a move.

    Attributes:
        job: id of the new job.
        savepoint: path of the savepoint that it was restored from.
        pause_s: from the request to stop the old job until all parts of the new one ran.
        found: where its parts run.
    """

    job: str
    savepoint: str
    pause_s: float
    found: Verification


def move(
    rest: Rest,
    job_id: str,
    plan: Path,
    command: Sequence[str],
    *,
    savepoints: str | None = None,
    progress: Callable[[str], None] = lambda message: None,
    timeout_s: float = SUBMIT_S,
) -> Moved:
    """Stop a job with a savepoint and submit it again, pinned by another plan.

    Args:
        rest: of its cluster.
        job_id: of the running job, which has the stable ids that the plug-in gives.
        plan: as JSON.
        command: what submitted it, e.g. ``flink run -d job.jar``; Flink's configuration
            (``FLINK_CONF_DIR``, else ``FLINK_HOME/conf``) is given to it with the plan and the
            savepoint added.
        savepoints: directory that all processes of the cluster can write; None is the cluster's.
        progress: called with each step, as a line of text.
        timeout_s: until the new job must run.

    Raises:
        NovaError: when something is missing (the job keeps running), or the job cannot be
            submitted again (the message names the savepoint to restore it from).
    """
    own_jobs.parts(rest, job_id)
    _check_nodes(rest, plan)
    configured = _configuration()
    known = set(rest.jobs())
    # Flink takes savepoints of running jobs only, not of starting ones.
    _await_running(rest, job_id, timeout_s)
    progress(f"stopping job {job_id} with a savepoint")
    begin = time.monotonic()
    savepoint = rest.stop_with_savepoint(job_id, savepoints)
    try:
        rest.wait_ended(job_id, timeout_s=60.0)
        progress(f"submitting it again from {savepoint}")
        new = _submit(rest, command, configured, plan, savepoint, known, timeout_s)
        _await_running(rest, new, timeout_s)
    except NovaError as error:
        raise FlinkError(f"{error}; the job is stopped, its state is in {savepoint}") from error
    pause = time.monotonic() - begin
    return Moved(new, savepoint, pause, own_jobs.verify(rest, new))


def _check_nodes(rest: Rest, plan: Path) -> None:
    """Refuse a plan with nodes that the cluster lacks, before anything is stopped."""
    import json

    try:
        document = json.loads(plan.read_text("utf-8"))
        required = {str(row["node"]) for row in document["instances"]}
        required |= {str(edge[end]) for edge in document["edges"] for end in ("from", "to")}
    except OSError as error:
        raise NovaError(f"{plan}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise NovaError(
            f"{plan}: not a plan as JSON with instances and edges; write it with "
            "`nova plan -o FILE.json`"
        ) from error
    offered = set(own_jobs.nodes_of(rest.task_managers()).values())
    missing = sorted(required - offered)
    if missing:
        raise NovaError(
            f"{plan}: node {missing[0]}: no TaskManager of {rest.url} offers its external resource"
        )


def _configuration() -> Path:
    """The directory of Flink's configuration that commands use."""
    directory = os.environ.get("FLINK_CONF_DIR")
    if directory is None and "FLINK_HOME" in os.environ:
        directory = f"{os.environ['FLINK_HOME']}/conf"
    if directory is None or not (Path(directory) / CONFIGURATION).is_file():
        raise NovaError(
            f"FLINK_CONF_DIR: {directory or 'is not set'}: expected the directory with the "
            f"{CONFIGURATION} that the job was submitted with (or set FLINK_HOME)"
        )
    return Path(directory)


def configured(text: str, settings: Mapping[str, str]) -> str:
    """Flink's YAML with some settings replaced or added.

    Raises:
        NovaError: for text that is no configuration of Flink.
    """
    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise NovaError(f"{CONFIGURATION}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(document, dict):
        raise NovaError(f"{CONFIGURATION}: expected a mapping")
    for key, value in settings.items():
        _remove(document, key)
        document[key] = value
    return str(yaml.safe_dump(document, sort_keys=False, width=10_000))


def _remove(document: dict[Any, Any], key: str) -> None:
    """Remove a key, whether written flat or nested in any way."""
    document.pop(key, None)
    for first in list(document):
        if isinstance(first, str) and key.startswith(f"{first}."):
            inner = document[first]
            if isinstance(inner, dict):
                _remove(inner, key.removeprefix(f"{first}."))
                if not inner:
                    del document[first]


def _submit(
    rest: Rest,
    command: Sequence[str],
    configuration: Path,
    plan: Path,
    savepoint: str,
    known: set[str],
    timeout_s: float,
) -> str:
    with tempfile.TemporaryDirectory(prefix="nova-move-") as scratch:
        directory = Path(scratch) / "conf"
        shutil.copytree(configuration, directory)
        file = directory / CONFIGURATION
        settings = {
            "nova.plan": str(plan.absolute()),
            "execution.state-recovery.path": savepoint,
            "execution.target": "nova",
        }
        file.write_text(configured(file.read_text("utf-8"), settings), "utf-8")
        try:
            completed = subprocess.run(
                list(command),
                env={**os.environ, "FLINK_CONF_DIR": str(directory)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except OSError as error:
            raise NovaError(f"{command[0]}: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise NovaError(f"{command[0]}: does not end within {timeout_s:g} s") from error
    output = f"{completed.stdout}\n{completed.stderr}"
    # Not every client prints the id of the job that it submitted.
    new = [one for one in _ID.findall(output) if one not in known] or sorted(
        set(rest.jobs()) - known
    )
    if completed.returncode or not new:
        raise NovaError(f"{command[0]}: has submitted no job: {_excerpt(output)}")
    return str(new[-1])


def _excerpt(output: str) -> str:
    """The line of a client's output that explains its failure."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if "Refusal: " in line or line.startswith("Caused by: ")]
    return (causes or lines or ["it says nothing"])[-1][-QUOTED:]


def _await_running(rest: Rest, job_id: str, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while True:
        job = rest.job(job_id)
        states = [str(vertex["status"]) for vertex in job["vertices"]]
        if job["state"] in ENDED and job["state"] != "FINISHED":
            why = "; ".join(rest.exceptions(job_id)[-2:]) or "Flink gives no reason"
            raise FlinkError(f"{rest.url}: job {job_id} is {job['state']}: {why}")
        if states and all(state in RUNNING for state in states):
            return
        if time.monotonic() > until:
            raise FlinkError(f"{rest.url}: job {job_id} does not run after {timeout_s:g} s")
        time.sleep(POLL_S)
