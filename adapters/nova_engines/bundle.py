"""What bundles of all engines share: options, addresses, and scripts.

Whatever comes from a plan, a problem or an option stands in a script only as `words`, `assignment`
or `comment` write it: a shell takes it for text.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nova_core.errors import NovaError
from nova_core.model.validation import UNUSABLE, is_host

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

T = TypeVar("T")

TRUTH = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
HERE = 'here=$(cd "$(dirname "$0")" && pwd)'

# Where others could put files, a host is theirs: they would be started.
OWN = """\
umask 077
mkdir -p "$work"
if [ ! -O "$work" ] || [ -L "$work" ] || [ -n "$(find "$work" -maxdepth 0 -perm /022)" ]; then
  echo "$work: belongs to someone else, or others can write to it" >&2
  exit 1
fi"""
# A process is known by its mark and by when it began: its number may have become another's.
RUNNING = """\
begun() {
  sed 2> /dev/null 's/^.*) //' "/proc/$1/stat" | cut -d ' ' -f 20
}
running() {
  pid= ticks=
  [ ! -f "$work/$1.pid" ] || read -r pid ticks < "$work/$1.pid" || true
  case $pid in '' | *[!0-9]*) return 1 ;; esac
  [ -n "$ticks" ] && [ "$(begun "$pid")" = "$ticks" ] &&
    tr 2> /dev/null '\\0' '\\n' < "/proc/$pid/environ" | grep -qxF -e "NOVA_ENGINE=$work/$1"
}"""
START = """\
start() {
  if running "$1"; then
    echo "$1 runs already, process $pid" >&2
    return
  fi
  NOVA_ENGINE="$work/$1" nohup sh "$here/$1.sh" > "$work/log/$1.out" 2>&1 < /dev/null &
  pid=$!
  echo "$pid $(begun "$pid")" > "$work/$1.pid"
}"""
STOP = """\
stop() {
  left=100
  while running "$1"; do
    if [ "$left" -eq 100 ]; then kill "$pid" 2> /dev/null || true; fi
    if [ "$left" -le 0 ]; then kill -9 "$pid" 2> /dev/null || true; fi
    if [ "$left" -le -50 ]; then
      echo "$1, process $pid, does not end" >&2
      exit 1
    fi
    sleep 0.1
    left=$((left - 1))
  done
  rm -f "$work/$1.pid"
}"""


def words(*command: object) -> str:
    """Words of a command."""
    return shlex.join(map(str, command))


def assignment(name: str, value: object) -> str:
    """A variable."""
    return f"{name}={shlex.quote(str(value))}"


def comment(text: str) -> str:
    """A line that does nothing."""
    return "# " + "".join(c if c.isprintable() else " " for c in text)


def write_script(path: Path, lines: Iterable[str]) -> None:
    """Write a script that ``/bin/sh`` runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n", "utf-8")
    path.chmod(0o755)


def write_processes(
    directory: Path,
    about: str,
    work: str,
    processes: Mapping[str, str],
    prepare: Sequence[str] = (),
    after: Sequence[str] = (),
) -> None:
    """Write ``start.sh`` and ``stop.sh`` of a host's processes, and a script for each.

    Args:
        directory: is made.
        about: what they are, for people.
        work: directory on the host; refused there unless it is the user's own.
        processes: shell commands by name, in the order they are started.
        prepare: lines of shell before the first is started; ``$here`` and ``$work`` are set.
        after: lines of shell after the last has ended.
    """
    for name, command in processes.items():
        write_script(directory / f"{name}.sh", [command])
    begin = ["set -eu", HERE, assignment("work", work), OWN, 'mkdir -p "$work/log"', *prepare]
    starts = [words("start", name) for name in processes]
    write_script(
        directory / "start.sh", [comment(f"Starts {about}."), *begin, RUNNING, START, *starts]
    )
    stops = [words("stop", name) for name in reversed(list(processes))]
    about_stop = comment("Ends what start.sh started.")
    write_script(
        directory / "stop.sh",
        [about_stop, assignment("work", work), RUNNING, STOP, *stops, *after],
    )


def read_options(kind: Callable[..., T], given: Mapping[str, Any], engine: str) -> T:
    """What ``--set`` gives a bundle.

    Args:
        kind: a dataclass whose fields have defaults.
        given: values by name; numbers and yes or no may be text.
        engine: its name for people.

    Raises:
        NovaError: for one that is unknown, or not what its field takes.
    """
    known = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise NovaError(f"option {name!r}: unknown; {engine} takes {', '.join(known)}")
        if isinstance(known[name], bool):
            if str(value).lower() not in TRUTH:
                raise NovaError(f"option {name}: {value!r}: expected yes or no")
            values[name] = TRUTH[str(value).lower()]
        elif isinstance(known[name], int):
            try:
                values[name] = int(value)
            except (ValueError, OverflowError) as error:
                raise NovaError(f"option {name}: {value!r}: expected a whole number") from error
        else:
            values[name] = str(value)
            if not values[name]:
                raise NovaError(
                    f"option {name}: nothing is given; leave it out if it is not wanted"
                )
            if UNUSABLE.search(values[name]):
                raise NovaError(
                    f"option {name}: {value!r}: expected text without control characters"
                )
    return kind(**values)


def addresses(problem: Problem, nodes: Iterable[str]) -> dict[str, str]:
    """Where nodes of a problem are reached: at their ``host``, or their name.

    Raises:
        NovaError: for a node that is not in the problem, or that has neither.
    """
    known, index = problem.nodes, problem.node_index
    reached: dict[str, str] = {}
    for node in nodes:
        host = "" if known.host is None else str(known.host[index[node]])
        address = host or node
        if not is_host(address):
            what = f"host {host!r}" if host else "its name"
            raise NovaError(
                f"node {node!r}: {what} is no host name or IP address; give the node a host"
            )
        reached[node] = address
    return reached


def copy_modules(target: Path, modules: Mapping[str, Sequence[str]]) -> None:
    """Copy modules of Nova's, for hosts that have no Nova.

    Args:
        target: directory that is to be in their PYTHONPATH.
        modules: names by package, or by directory of a package.
    """
    for package, names in modules.items():
        root = Path(str(import_module(package.partition("/")[0]).__file__)).parents[1]
        (target / package).mkdir(parents=True)
        for name in names:
            shutil.copyfile(root / package / f"{name}.py", target / package / f"{name}.py")
