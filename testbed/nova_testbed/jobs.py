"""Background jobs on a host: started detached, found again, stopped with all they started.

A job is identified by a mark in the environment of its processes and by its session; process ids
alone may be reused for other processes.
"""

from __future__ import annotations

import secrets
import shlex
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nova_testbed.connection import HostError

if TYPE_CHECKING:
    from nova_testbed.host import Host

GRACE_SECONDS = 5.0
OUTPUT_BYTES = 1 << 20

# Prints the processes of job $1: those with its mark in their environment, and all in the sessions
# of those; when only the leader $2 of its first session, begun at $3, is left, then that session's.
MEMBERS = r"""
members() {
  marked=$(grep -lszFx "NOVA_JOB=$1" /proc/[0-9]*/environ | tr -dc '0-9\n' | tr '\n' ' ')
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v marked="$marked" -v leader="$2" -v begun="$3" '
    { id = $1; sub(/^.*\) /, ""); state[id] = $1; session[id] = $4; start[id] = $20 }
    END {
      n = split(marked, list, " ")
      for (i = 1; i <= n; i++) if (list[i] in session) { own[list[i]]; ours[session[list[i]]] }
      if ((leader in start) && start[leader] == begun) ours[leader]
      for (id in session)
        if (((id in own) || (session[id] in ours)) && state[id] != "Z") print id
    }'
}
"""
# Asks job $1 $2 $3 to end, waits up to $4 tenths of a second, then kills until nothing is left. The
# shell around the command comes first, or it may note how the command was ended as its exit status.
STOP = r"""
stop() {
  signal=TERM; left=$4
  while all=$(members "$1" "$2" "$3"); [ -n "$all" ]; do
    [ "$left" -gt 0 ] || signal=KILL
    [ "$left" -gt -50 ] || { echo "still there:" $all >&2; return 1; }
    echo "$all" | grep -qx "$2" && all="$2 $all"
    [ -z "$signal" ] || kill -s $signal $all 2>/dev/null
    [ "$signal" = KILL ] || signal=
    sleep 0.1; left=$((left - 1))
  done
}
"""
# Makes directory $1; fails where another user may have made it or written to it.
OWN = r"""
own() {
  umask 077; mkdir -p "$1" || exit 1
  [ -O "$1" ] && [ ! -L "$1" ] || { echo "$1 belongs to someone else" >&2; exit 1; }
  case $(stat -c %a "$1") in
    *700) ;;
    *) echo "$1 is open to others; remove it, or chmod 700 it if all in it is yours" >&2; exit 1 ;;
  esac
}
"""
DIRECTORY = (
    OWN
    + r"""
d=${TMPDIR:-/tmp}/nova-testbed-$(id -u); own "$d"
"""
)
START = r"""
: >"$log" || exit 1
NOVA_JOB=$mark setsid /bin/sh -c "$work" "$d/$mark" </dev/null >"$log" 2>&1 &
pid=$!
begun=$(sed 's/^.*) //' /proc/$pid/stat | cut -d' ' -f20)
echo "$mark $pid ${begun:-0} $name $log" >"$d/$mark.job" ||
  { kill -s KILL -- -$pid; exit 1; }
cat "$d/$mark.job"
"""
# Only a directory of the user's has records of jobs; others may have made one of its name.
FIND = r"""
d=${TMPDIR:-/tmp}/nova-testbed-$(id -u)
[ -d "$d" ] && [ -O "$d" ] && [ ! -L "$d" ] || exit 0
for f in "$d"/*.job; do
  [ -e "$f" ] || continue
  read -r mark pid begun name log <"$f"
  if [ -n "$(members $mark $pid $begun)" ]; then cat "$f"; else rm -f "$d/$mark".*; fi
done
"""
WAIT = r"""
while [ ! -e "$d/$mark.exit" ] &&
  [ "$(sed 's/^.*) //' /proc/$pid/stat 2>/dev/null | cut -d' ' -f20)" = "$begun" ]
do sleep 0.2; done
cat "$d/$mark.exit" 2>/dev/null || echo -1
"""


@dataclass(frozen=True)
class Job:
    """Identifies the processes that a command has started, and no others.

    Attributes:
        mark: ``NOVA_JOB`` in the environment of its processes.
        pid: of the command and its session; 0 where only the mark is known.
        begun: when that process began, in clock ticks since the host was started.
    """

    mark: str
    pid: int = 0
    begun: int = 0

    def __str__(self) -> str:
        return f"{self.mark} {self.pid} {self.begun}"


@dataclass(frozen=True)
class BackgroundJob:
    """A command that runs in the background of a host.

    Attributes:
        host: where.
        job: what identifies it.
        name: what it is called.
        log: file on the host with what it prints.
        root: whether it runs as root.
    """

    host: Host
    job: Job
    name: str
    log: str
    root: bool

    @property
    def pid(self) -> int:
        """Process id of the command on its host."""
        return self.job.pid

    def alive(self) -> bool:
        """Whether any of its processes still runs."""
        return bool(self.processes())

    def processes(self) -> list[int]:
        """Ids of its processes now."""
        output = self.host.run(f"{MEMBERS}\nmembers {self.job}", root=self.root)
        return [int(word) for word in output.stdout.split()]

    def wait(self, timeout: float | None = 60.0) -> int:
        """Wait until the command has ended by itself.

        Returns:
            Its exit status; -1 when it was killed.

        Raises:
            HostTimeoutError: when it still runs after ``timeout`` s; it keeps running.
        """
        variables = f"mark={self.job.mark} pid={self.job.pid} begun={self.job.begun}\n"
        output = self.host.run(DIRECTORY + variables + WAIT, timeout=timeout, root=self.root)
        return int(output.stdout)

    def output(self) -> str:
        """What it has printed so far, `OUTPUT_BYTES` at most."""
        command = f"tail -c {OUTPUT_BYTES} {shlex.quote(self.log)}"
        return self.host.run(command, root=self.root).stdout

    def last_words(self) -> str:
        """The last line it has printed."""
        return (self.output().strip() or "no output").splitlines()[-1]

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End it and all it started; returns when none of its processes is left.

        Args:
            grace: s between the signal to end and the kill.

        Raises:
            HostError: when a process cannot be ended.
        """
        stop(self.host, self.job, root=self.root, grace=grace)

    def end(self) -> None:
        """Stop it and remove its records."""
        self.stop()
        self.discard()

    def discard(self) -> None:
        """Remove its records, and its output unless that went to a file of the caller's."""
        command = f'{DIRECTORY}rm -f "$d/{self.job.mark}".*'
        self.host.run(command, root=self.root)


def own_directory(host: Host, path: str) -> None:
    """Make a directory on a host, unless it exists and is the user's alone.

    Raises:
        HostError: where it belongs to another user, or is open to others.
    """
    result = host.run(f"{OWN}own {shlex.quote(path)}", check=False)
    if result.returncode:
        raise HostError(host.name, result.last_words)


def start(host: Host, command: str, name: str, log: str | None, root: bool) -> BackgroundJob:
    """See `nova_testbed.host.Host.start`."""
    if not name.isidentifier():
        raise HostError(host.name, f"job name {name!r} is not accepted; letters and digits are")
    mark = secrets.token_hex(8)
    place = shlex.quote(log) if log is not None else f'"$d/{mark}.log"'
    # The shell around the command notes its exit status and reaps it.
    work = shlex.quote(f'( {command}\n)\necho $? >"$0.exit"')
    variables = f"mark={mark} name={name} log={place}\nwork={work}\n"
    result = host.run(DIRECTORY + variables + START, root=root, check=False)
    if result.returncode:
        raise HostError(host.name, f"`{command}` cannot be started: {result.last_words}")
    return _job(host, result.stdout, root)


def find(host: Host, name: str | None) -> list[BackgroundJob]:
    """See `nova_testbed.host.Host.jobs`."""
    from nova_testbed.host import NoRootError

    jobs = _recorded_jobs(host, root=False)
    if not host.spec.rootless and not host.is_root and "sudo" in host.programs:
        # A user who may not become root has started no jobs as root.
        with suppress(NoRootError):
            jobs += _recorded_jobs(host, root=True)
    return [job for job in jobs if name in (None, job.name)]


def _recorded_jobs(host: Host, *, root: bool) -> list[BackgroundJob]:
    output = host.run(MEMBERS + FIND, root=root)
    return [_job(host, line, root) for line in output.stdout.splitlines()]


def stop(host: Host, job: Job, *, root: bool, grace: float) -> None:
    """End all processes of a job.

    Raises:
        HostError: when one cannot be ended.
    """
    tenths = round(10 * grace)
    command = f"{MEMBERS}{STOP}stop {job} {tenths}"
    # Jobs are stopped even when the host's commands are cancelled.
    result = host.undisturbed().run(command, root=root, timeout=grace + 30, check=False)
    if result.returncode:
        raise HostError(host.name, f"processes cannot be ended: {result.last_words}")


def _job(host: Host, line: str, root: bool) -> BackgroundJob:
    mark, pid, begun, name, log = line.rstrip("\n").split(" ", 4)
    return BackgroundJob(host, Job(mark, int(pid), int(begun)), name, log, root)
