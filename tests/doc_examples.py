"""Examples of a page of documentation: finding them, running them, comparing what is shown.

* ```console: the lines after ``$`` run, one by one (``>`` continues a command), and must succeed.
  Lines of output that are shown must occur in the real output in that order, where figures may
  differ; ``...`` stands for anything.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\S*) ?(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"[-+]?\d[\d,.]*(e-?\d+)?( ?(µs|ms|s|min)\b)?")
# Commands of ours that mean to a shell what they say, and start no processes themselves; their
# output may go to a file.
PLAIN = re.compile(r"(nova (?!reproduce |bench )[\w ./=:,@%+'\"-]*?)(?: > ([\w./-]+))?")
# What most commands import, and kernels that they run: most of the time that they take.
PRELOAD = [
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "nova_core.cli",
    "nova_core.costspace",
    "nova_core.evaluation.metrics",
    "nova_core.model",
    "nova_core.placement.kernels",
    "nova_core.plotting",
    "nova_core.strategies.clusters",
    "nova_core.strategies.nova",
    "rich.markup",
    "rich.progress",
    "rich.table",
    "scipy.optimize",
    "scipy.spatial",
    # Last: it runs what the others have loaded.
    "tests.loaded_kernels",
]


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str


def blocks_of(text: str) -> list[Block]:
    return [Block(*match.groups()) for match in FENCE.finditer(text)]


def commands_of(block: Block) -> list[tuple[str, list[str]]]:
    """Each command with the lines of output shown below it."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            assert found, f"output without a command: {line!r}"
            found[-1][1].append(line)
    return [("\n".join(command), output) for command, output in found]


def skeleton(line: str) -> str:
    """A line without what may differ: figures, units of time, spacing, the drawing of tables."""
    line = FIGURE.sub("#", line)
    return " ".join(re.sub(r"[─━│┃]+", " ", line).split())


def missing_line(shown: list[str], real: str) -> str | None:
    """The first line shown that the real output does not have after those before it."""
    rest = iter([skeleton(line) for line in real.splitlines()])
    for line in shown:
        wanted = skeleton(line)
        if wanted in ("", "..."):
            continue
        pattern = re.compile(re.escape(wanted).replace(re.escape("..."), ".*"))
        if not any(pattern.fullmatch(candidate) for candidate in rest):
            return line
    return None


def environment_of_examples() -> dict[str, str]:
    """With `nova` on PATH, and a terminal of 120 columns."""
    scripts = Path(sys.executable).parent
    return os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "120"}


def run_and_compare(
    block: Block, directory: Path, environment: dict[str, str], *, warm: bool = False
) -> int:
    """Run a block's commands; each must print what is shown below it. How many there were.

    Args:
        warm: run `nova` in processes that have imported its libraries already, where no shell is
            needed.
    """
    commands = commands_of(block)
    for command, shown in commands:
        plain = PLAIN.fullmatch(command.replace("\\\n", "")) if warm else None
        if plain is not None:
            file = directory / plain[2] if plain[2] else None
            output = run_warm(shlex.split(plain[1])[1:], directory, environment, file)
        else:
            output = run(["bash", "-c", command], directory, environment)
        missing = missing_line(shown, output)
        assert missing is None, (
            f"$ {command}\ndoes not print this line, or not here:\n{missing}\nbut:\n{output}"
        )
    return len(commands)


def run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    """Run; return what it printed."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return succeeded(command[-1], done.returncode, done.stdout)


def run_warm(
    arguments: list[str], directory: Path, environment: dict[str, str], file: Path | None = None
) -> str:
    """Run `nova` in a process forked from one that has done the imports; what it printed.

    Args:
        arguments: of `nova`.
        directory: where it runs.
        environment: of the process.
        file: where its standard output goes, if it is not to be returned.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with tempfile.NamedTemporaryFile() as output:
        process = context.Process(
            target=_nova,
            args=(arguments, str(directory), environment, str(file or output.name), output.name),
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        return succeeded(
            f"nova {shlex.join(arguments)}", process.exitcode, Path(output.name).read_text()
        )


def _nova(
    arguments: list[str], directory: str, environment: dict[str, str], out: str, error: str
) -> None:
    """What the command `nova` does, in a process made for it."""
    how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC
    for number, name in ((1, out), (2, error)):
        os.dup2(os.open(name, how, 0o666), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = ["nova", *arguments]

    from nova_core.cli import main

    main()


def succeeded(command: str, code: int, output: str) -> str:
    """The output of a command, which must have succeeded."""
    assert code == 0, f"{command}\nended with {code}:\n{output}"
    assert "Traceback" not in output
    return output
