"""One host: run commands on it, in the foreground or in the background."""

from __future__ import annotations

import secrets
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import paramiko

from nova_testbed import jobs
from nova_testbed.connection import Connection, HostError
from nova_testbed.inventory import HostSpec

if TYPE_CHECKING:
    from pathlib import Path

    from nova_testbed.jobs import BackgroundJob

BLOCK = 1 << 16
# How often a waiting command checks whether it is cancelled.
TICK_SECONDS = 0.2
# What the login shell gets, whichever it is: nothing that one of them takes for its own (in single
# quotes, fish reads backslashes, tcsh exclamation marks and ends of lines). The script comes over
# stdin; `dd` reads it and not a byte of what follows.
_SHELL = "env NOVA_JOB={mark} /bin/sh -c 'eval \"$(dd bs=1 count={size} 2>/dev/null)\"'"
# How much of what comes before the command is kept, for an error to quote.
BEFORE_BYTES = 4096
# How long output is still read when a command has ended but a process it left holds it open.
DRAIN_SECONDS = 1.0


@dataclass(frozen=True)
class Result:
    """The result of a command.

    Attributes:
        host: where it ran.
        returncode: its exit status; 128 plus the signal's number when a signal ended it.
        stdout: its output.
        stderr: its error output.
        seconds: how long it took, including the round trip to the host.
    """

    host: str
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_words(self) -> str:
        """The last line it printed, on stderr if there was any."""
        lines = (self.stderr.strip() or self.stdout.strip() or "no output").splitlines()
        return lines[-1].strip()


class CommandError(HostError):
    """A command that failed.

    Attributes:
        result: what it printed and returned.
    """

    def __init__(self, host: str, message: str, result: Result) -> None:
        super().__init__(host, message)
        self.result = result


class NoRootError(HostError):
    """A user who may not run commands as root."""


class HostTimeoutError(HostError):
    """A command or a transfer that did not end in time; it was stopped."""


class InterruptedCommandError(HostError):
    """A command that was stopped because all were cancelled."""


class Host:
    """A host reached over SSH; its commands are run by ``/bin/sh``.

    Attributes:
        spec: what the inventory says about it.
        name: its name.
        cancelled: when set, whatever runs in the foreground is stopped.
    """

    def __init__(self, spec: HostSpec, cancelled: threading.Event | None = None) -> None:
        self.spec = spec
        self.name = spec.name
        self.cancelled = cancelled or threading.Event()
        self.connection = Connection(spec)
        self._started: list[BackgroundJob] = []

    # --- in the foreground ----------------------------------------------------------------------

    def run(
        self,
        command: str,
        *,
        timeout: float | None = 60.0,
        check: bool = True,
        root: bool = False,
        stdin: bytes = b"",
    ) -> Result:
        """Run a command and wait for it.

        Args:
            command: for ``/bin/sh``.
            timeout: s after which the command and all it started are stopped; None waits.
            check: whether an exit status other than 0 is an error.
            root: run it as root, through ``sudo -n`` where the user is not root.
            stdin: what it reads.

        Raises:
            HostTimeoutError: after ``timeout``.
            CommandError: with ``check``, when it fails.
            NoRootError: with ``root``, when the user may not.
            HostError: when the connection fails, or for ``root`` where nobody is.
        """
        output = bytearray()
        feed = (lambda write: write(stdin)) if stdin else None
        code, errors, seconds = self.stream(command, feed, output.extend, timeout, root)
        text, complaint = output.decode(errors="replace"), errors.decode(errors="replace")
        result = Result(self.name, code, text, complaint, seconds)
        if check and code:
            what = f"`{short(command)}` ended with {code}: {result.last_words}"
            raise CommandError(self.name, what, result)
        return result

    def stream(
        self,
        command: str,
        feed: Callable[[Callable[[bytes], None]], None] | None,
        sink: Callable[[bytes], object],
        timeout: float | None,
        root: bool = False,
    ) -> tuple[int, bytes, float]:
        """Run a command that reads or prints much.

        Args:
            command: for ``/bin/sh``.
            feed: called in a thread with a function that writes to the command's stdin.
            sink: called with each block it prints.
            timeout: as for `run`.
            root: as for `run`.

        Returns:
            Its exit status, what it printed on stderr, and the seconds it took.
        """
        mark = secrets.token_hex(8)
        script = _script(command, mark, reads=feed is not None).encode()
        if root and self.spec.rootless:
            raise HostError(self.name, "nobody is root on a virtual host")
        begin = time.monotonic()
        deadline = None if timeout is None else begin + timeout
        answer = _Answer(mark, sink)
        sudo = self._sudo(root)
        try:
            with self.connection.sessions:
                channel = self.connection.session()
                line = f"exec {sudo}" + _SHELL.format(mark=mark, size=len(script))
                try:
                    code = self._converse(channel, line, script, feed, answer, command, deadline)
                finally:
                    _close(channel)
        except (HostTimeoutError, InterruptedCommandError, KeyboardInterrupt) as error:
            jobs.stop(self, jobs.Job(mark), root=root, grace=1.0)
            if isinstance(error, HostTimeoutError):
                raise HostTimeoutError(
                    self.name, f"`{short(command)}` took over {timeout:g} s and was stopped"
                ) from None
            raise
        if not answer.begun:
            raise self._no_shell(bool(sudo), answer, code)
        return code, answer.errors, time.monotonic() - begin

    def _no_shell(self, sudo: bool, answer: _Answer, code: int) -> HostError:
        """Why /bin/sh did not begin: sudo refused it, or the login shell did something else."""
        said = answer.last_words() or f"it ended with {code}"
        user = self.spec.user
        if sudo:
            return NoRootError(
                self.name,
                f"user {user!r} may not run commands as root without a password ({said}); log in "
                f"as root, or on the host: echo '{user} ALL=(ALL) NOPASSWD: ALL' | sudo tee "
                "/etc/sudoers.d/nova",
            )
        return HostError(
            self.name,
            f"the login shell of user {user!r} runs no commands ({said}); expected a shell that "
            "does, such as /bin/sh (chsh)",
        )

    def _converse(
        self,
        channel: paramiko.Channel,
        line: str,
        script: bytes,
        feed: Callable[[Callable[[bytes], None]], None] | None,
        answer: _Answer,
        command: str,
        deadline: float | None,
    ) -> int:
        feeder = _Feeder(channel, script, feed)
        try:
            channel.exec_command(line)
        except (paramiko.SSHException, EOFError, OSError):
            raise self.connection.lost() from None
        feeder.start()
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        ended: float | None = None
        while True:
            while channel.recv_ready():
                answer.printed(channel.recv(BLOCK))
            while channel.recv_stderr_ready():
                answer.complained(channel.recv_stderr(BLOCK))
            if feeder.error is not None:
                raise feeder.error
            now = time.monotonic()
            if (channel.eof_received or channel.closed) and not channel.recv_ready():
                break
            if ended is None and channel.exit_status_ready():
                ended = now
            if ended is not None and now > ended + DRAIN_SECONDS:
                break
            self.go_on(short(command), deadline)
            poll.poll(_wait_ms(now, deadline))
        while not channel.status_event.wait(TICK_SECONDS):
            if channel.closed or not channel.get_transport().is_active():
                break
            self.go_on(short(command), deadline)
        while channel.recv_stderr_ready():
            answer.complained(channel.recv_stderr(BLOCK))
        code = channel.recv_exit_status() if channel.status_event.is_set() else -1
        if code < 0 and not channel.get_transport().is_active():
            raise self.connection.lost()
        feeder.join()
        return code

    def go_on(self, what: str, deadline: float | None) -> None:
        """Return if a waiting call may continue, else raise.

        Args:
            what: for the error.
            deadline: of `time.monotonic`, or None.

        Raises:
            HostTimeoutError: after the deadline.
            InterruptedCommandError: when all was cancelled.
        """
        if self.cancelled.is_set():
            raise InterruptedCommandError(self.name, f"{what}: interrupted")
        if deadline is not None and time.monotonic() > deadline:
            raise HostTimeoutError(self.name, f"{what}: took too long and was stopped")

    def _sudo(self, root: bool) -> str:
        return "sudo -n " if root and not self.is_root else ""

    def undisturbed(self) -> Self:
        """The same host on the same connection, for commands that run even after cancellation."""
        other = copy(self)
        other.cancelled = threading.Event()
        return other

    # --- in the background ----------------------------------------------------------------------

    def start(
        self,
        command: str,
        *,
        name: str = "job",
        log: str | None = None,
        root: bool = False,
        keep: bool = False,
    ) -> BackgroundJob:
        """Start a command that goes on when this program ends.

        Args:
            command: for ``/bin/sh``.
            name: what `jobs` finds it by.
            log: file on the host for what it prints; one of its own by default.
            root: run it as root.
            keep: leave it running when the hosts are closed.

        Returns:
            The job, which can be asked about and stopped.

        Raises:
            HostError: when it cannot be started.
        """
        job = jobs.start(self, command, name, log, root)
        if not keep:
            self._started.append(job)
        return job

    def jobs(self, name: str | None = None) -> list[BackgroundJob]:
        """Background jobs that this user started, in this or another program, and that still run.

        Args:
            name: only those of this name.
        """
        return jobs.find(self, name)

    def end_jobs(self, name: str | None = None) -> int:
        """Stop the jobs that `jobs` finds and remove their records; how many there were."""
        running = self.jobs(name)
        for job in running:
            job.end()
        return len(running)

    # --- files ----------------------------------------------------------------------------------

    def put(
        self,
        local: str | Path,
        remote: str,
        *,
        timeout: float | None = 600.0,
        root: bool = False,
    ) -> None:
        """Copy a file or directory to the host.

        Args:
            local: a file or directory here.
            remote: its path there: absolute, or relative to the user's home.
                A file appears complete or not at all; a directory is merged into one that exists.
            timeout: s.
            root: write as root.

        Raises:
            HostError: when it cannot be read here or written there.
        """
        from nova_testbed.transfer import put

        put(self, local, remote, timeout, root)

    def get(
        self,
        remote: str,
        local: str | Path,
        *,
        timeout: float | None = 600.0,
        root: bool = False,
    ) -> None:
        """Copy a file or directory from the host; arguments and errors as for `put`."""
        from nova_testbed.transfer import get

        get(self, remote, local, timeout, root)

    # --- facts ----------------------------------------------------------------------------------

    @cached_property
    def is_root(self) -> bool:
        """Whether the user is root there."""
        return self.run("id -u").stdout.strip() == "0"

    @cached_property
    def programs(self) -> frozenset[str]:
        """The programs of `PROGRAMS` that the host has."""
        names = " ".join(PROGRAMS)
        output = self.run(f"for p in {names}; do command -v $p >/dev/null && echo $p; done; true")
        return frozenset(output.stdout.split())

    # --- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop background jobs, except kept ones, and end the connection.

        Raises:
            HostError: when a job may still be running there.
        """
        try:
            while self._started:
                self._started[-1].end()
                self._started.pop()
        finally:
            self.connection.close()


PROGRAMS = ("chronyc", "python3", "rsync", "setsid", "stress-ng", "sudo", "tar", "tc")


def _script(command: str, mark: str, reads: bool) -> str:
    """What /bin/sh is given: a mark on stdout and stderr, after which a command's answers come.

    Programs of root are found, too: Debian leaves them out of a user's PATH.
    """
    begin = f"PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\necho {mark}\necho {mark} >&2\n"
    # A line after the command keeps the shell as its parent, which knows the signal that ended it.
    if reads:
        return f"{begin}( {command}\n)\ncode=$?\ncat >/dev/null\nexit $code"
    return f"{begin}exec </dev/null\n{command}\nexit $?"


def _close(channel: paramiko.Channel) -> None:
    """Close a channel whose `fileno` was used, while data may still arrive.

    Paramiko would announce the data in a pipe that it has just closed, and then end the whole
    connection (https://github.com/paramiko/paramiko/issues/1700).
    """
    for buffer in (channel.in_buffer, channel.in_stderr_buffer):
        buffer.set_event(threading.Event())
    channel.close()


class _Answer:
    """What a command prints, without what a login shell prints before it.

    Attributes:
        errors: what it printed on stderr.
    """

    def __init__(self, mark: str, sink: Callable[[bytes], object]) -> None:
        self._mark = f"{mark}\n".encode()
        self._sink = sink
        self._before: bytearray | None = bytearray()
        self._errors = bytearray()

    @property
    def begun(self) -> bool:
        """Whether the command began."""
        return self._before is None

    def printed(self, data: bytes) -> None:
        """Take what came on stdout."""
        if self._before is not None:
            self._before += data
            _, found, data = bytes(self._before).partition(self._mark)
            if not found:
                del self._before[:-BEFORE_BYTES]
                return
            self._before = None
        if data:
            self._sink(data)

    def complained(self, data: bytes) -> None:
        """Take what came on stderr."""
        self._errors += data

    @property
    def errors(self) -> bytes:
        """What the command printed on stderr."""
        noise, found, own = bytes(self._errors).partition(self._mark)
        return own if found else noise

    def last_words(self) -> str:
        """The last line that came before the command began, on stderr if there was any."""
        text = (self.errors.strip() or bytes(self._before or b"").strip()).decode(errors="replace")
        return text.splitlines()[-1].strip() if text else ""


class _Feeder:
    """Writes a script, and what it reads, to stdin while its output is read.

    The end of our input must not reach sshd after it has closed the session, for it would end the
    whole connection: hence no end where nothing is fed, or a script that waits for it.
    """

    def __init__(
        self,
        channel: paramiko.Channel,
        script: bytes,
        feed: Callable[[Callable[[bytes], None]], None] | None,
    ) -> None:
        self.channel = channel
        self.script = script
        self.feed = feed
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        # A script that nothing follows is short, and waits for nobody.
        if self.feed is not None:
            self.thread.start()
        else:
            with suppress(_ClosedError):
                self._send(self.script)

    def join(self) -> None:
        if self.feed is not None:
            self.channel.close()
            self.thread.join()

    def _write(self) -> None:
        assert self.feed is not None
        try:
            self._send(self.script)
            self.feed(self._send)
            with suppress(OSError, EOFError, paramiko.SSHException):
                self.channel.shutdown_write()
        except _ClosedError:
            pass  # the connection is gone, or was given up
        except Exception as error:
            self.error = error

    def _send(self, data: bytes) -> None:
        try:
            self.channel.sendall(data)
        except (OSError, EOFError, paramiko.SSHException):
            raise _ClosedError from None


class _ClosedError(Exception):
    pass


def _wait_ms(now: float, deadline: float | None) -> float:
    seconds = TICK_SECONDS if deadline is None else min(TICK_SECONDS, max(0.0, deadline - now))
    return 1000 * seconds


def short(command: str) -> str:
    """A command on one line, cut where it is long."""
    line = " ".join(command.split())
    return line if len(line) <= 60 else line[:57] + "..."
