"""The user-space switch of the data network: its configuration, its process, its counters."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from pathlib import Path

import msgspec

from nova_core.programs import PROGRAMS
from nova_core.user_cache import user_cache
from nova_testbed.inventory import Link
from nova_testbed.rack.processes import end_processes, last_message, marked, spawn
from nova_testbed.rack.state import SWITCH_PART, RackError, RackRecord, StateDirectory, replace

# Above the priorities on hosts, below the kernel's own threads.
PRIORITY = 50
SOURCE = Path(__file__).with_name("switch.c")
SOCKET = "switch.socket"
QUEUE_MS = 50.0
LEAST_QUEUE_BYTES = 30_000
START_SECONDS = 10.0
ANSWER_SECONDS = 2.0


class SwitchStatistics(msgspec.Struct, frozen=True):
    """Counters of a running switch.

    Attributes:
        pid: its process.
        realtime: whether it runs at real-time priority.
        received: packets, since it was started.
        sent: packets.
        bytes: received.
        dropped_queue: packets for which the queue of a limited link, or all memory, was full.
        dropped_loss: packets lost on purpose.
        dropped_unroutable: packets for no host of the rack.
        dropped_write: packets the receiving host's device refused.
        waiting: packets under way now.
        late_mean_us: mean delay of the release of packets since the last request for statistics.
        late_max_us: the greatest such delay.
        lead_us: how much earlier it wakes up, to compensate for the time of waking up.
        cpu_seconds: CPU time of its process.
    """

    pid: int
    realtime: bool
    received: int
    sent: int
    bytes: int
    dropped_queue: int
    dropped_loss: int
    dropped_unroutable: int
    dropped_write: int
    waiting: int
    late_mean_us: float
    late_max_us: float
    lead_us: float
    cpu_seconds: float


def queue_bytes(bandwidth_mbit: float) -> int:
    """Length of the queue of a limited link: 50 ms of its bandwidth, at least 20 packets."""
    return max(LEAST_QUEUE_BYTES, round(bandwidth_mbit * 1e6 / 8 * QUEUE_MS / 1000))


def config_text(record: RackRecord) -> str:
    """The switch's configuration, see `switch.c`."""
    names = record.names
    lines = [
        f"host {i} {names.namespace(host.name)} {names.data(i)}"
        for i, host in enumerate(record.hosts)
    ]
    for i, j, link in record.pairs():
        values = _line(link)
        lines += [f"link {i} {j} {values}", f"link {j} {i} {values}"]
    return "\n".join(lines) + "\n"


def _line(link: Link) -> str:
    delay, jitter = link.rtt_ms / 2 * 1000, link.jitter_ms * 1000
    rate = queue = 0
    if link.bandwidth_mbit is not None:
        rate, queue = round(link.bandwidth_mbit * 1e6), queue_bytes(link.bandwidth_mbit)
    return f"{delay:.3f} {rate} {queue} {jitter:.3f} {round(link.loss_percent * 10_000)}"


def build(cache: Path | None = None) -> Path:
    """The program of the switch, compiled on first use.

    Args:
        cache: where programs are kept; by default the user's cache directory.

    Raises:
        RackError: without a C compiler, or with its error.
    """
    if cache is None:
        cache = user_cache() / "switch"
    digest = hashlib.sha256(SOURCE.read_bytes() + os.uname().machine.encode()).hexdigest()[:16]
    program = cache / digest
    if program.exists():
        return program
    compiler = PROGRAMS["cc"].path
    if compiler is None:
        raise RackError(PROGRAMS["cc"].missing)
    temporary = cache / f".{digest}.{os.getpid()}"
    command = [compiler, "-O2", "-o", str(temporary), str(SOURCE)]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if result.returncode:
            raise RackError(f"the switch cannot be compiled: {' '.join(result.stderr.split())}")
        temporary.replace(program)
    except (OSError, subprocess.SubprocessError) as error:
        raise RackError(f"the switch cannot be compiled: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return program


def start(record: RackRecord, state: StateDirectory, procs_file: Path | None) -> SwitchStatistics:
    """Start the switch of a rack, and wait until it works.

    Args:
        record: whose namespaces and devices exist.
        state: its directory.
        procs_file: of the cgroup to start it in: real-time priority may be refused in others.

    Raises:
        RackError: with the switch's last message.
    """
    replace(state.switch_config, config_text(record))
    command = [str(build())]
    if procs_file is not None:
        command = ["sh", "-c", 'echo 0 > "$0"; exec "$@"', str(procs_file), *command]
    # The socket's name is relative: absolute ones may be too long.
    command += [state.switch_config.name, SOCKET, str(PRIORITY)]
    (state.path / SOCKET).unlink(missing_ok=True)
    spawn(command, record.number, SWITCH_PART, log=state.switch_log, directory=state.path)
    end = time.monotonic() + START_SECONDS
    while True:
        counters = statistics(state, timeout=0.2)
        if counters is not None:
            return counters
        if time.monotonic() > end or SWITCH_PART not in marked(record.number):
            stop(record)
            raise RackError(
                f"the switch of rack {record.name} does not start: {last_message(state.switch_log)}"
            )
        time.sleep(0.005)


def stop(record: RackRecord) -> None:
    """End the switch of a rack, running or not."""
    end_processes(lambda: marked(record.number).get(SWITCH_PART, set()))


def reload(record: RackRecord, state: StateDirectory) -> None:
    """Put the links of a record in force; packets under way stay.

    Raises:
        RackError: when the switch refuses or is not there.
    """
    replace(state.switch_config, config_text(record))
    answer = _ask(state, "reload", ANSWER_SECONDS)
    if answer is None:
        raise RackError(
            f"the switch of rack {record.name} does not answer: {last_message(state.switch_log)}; "
            "`nova testbed up` starts it again"
        )
    if answer != "ok":
        raise RackError(f"the switch of rack {record.name} refuses its links: {answer}")


def statistics(state: StateDirectory, timeout: float = ANSWER_SECONDS) -> SwitchStatistics | None:
    """Counters of the switch; None when it does not run."""
    answer = _ask(state, "stats", timeout)
    return None if answer is None else msgspec.json.decode(answer, type=SwitchStatistics)


def _ask(state: StateDirectory, order: str, timeout: float) -> str | None:
    try:
        directory = os.open(state.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.bind("")  # Linux picks a name, to which the answer goes
            client.settimeout(timeout)
            client.sendto(order.encode(), f"/proc/self/fd/{directory}/{SOCKET}")
            return client.recv(4096).decode()
    except OSError:
        return None
    finally:
        os.close(directory)
