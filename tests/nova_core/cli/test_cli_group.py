"""The group itself: laziness, errors as one line, exit codes, commands of other packages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nova_core import cli as cli_module
from nova_core.cli import COMMANDS, LAST_COMMANDS, cli
from nova_core.commands import shared

NOVA = [sys.executable, "-m", "nova_core"]


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NOVA, *arguments], capture_output=True, text=True, check=False, **options
    )


def test_help_lists_every_command_and_the_exit_codes(nova) -> None:
    result = nova("--help")
    assert result.exit_code == 0
    for name in (*COMMANDS, *LAST_COMMANDS):
        assert f"\n  {name} " in result.stdout
    assert "130" in result.stdout


def test_help_needs_nothing_heavy() -> None:
    program = (
        "import sys\nfrom nova_core.cli import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "print(*sorted({'numpy', 'rich', 'numba', 'scipy', 'pyarrow', 'msgspec', 'yaml', "
        "'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == ""
    assert "Commands:" in done.stdout


@pytest.mark.parametrize("name", [*COMMANDS, *LAST_COMMANDS])
def test_every_command_has_help_and_json(nova, name: str) -> None:
    result = nova(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: nova {name} ")
    command = cli.get_command(click.Context(cli), name)
    for part in command.commands if isinstance(command, click.Group) else []:
        assert "--json" in nova(name, part, "--help").stdout
    if name not in LAST_COMMANDS and not isinstance(command, click.Group):
        assert "--json" in result.stdout


def test_version(nova) -> None:
    result = nova("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("nova, version ")


def test_choices_kept_by_hand_are_the_optimizers() -> None:
    from typing import get_args

    from nova_core.model.objectives import OBJECTIVES
    from nova_core.strategies import names
    from nova_core.strategies.nova_parameters import Index, OnFull

    assert set(shared.BASELINES) < set(names())
    options = {o.name: o for o in cli.get_command(click.Context(cli), "plan").params}
    assert options["objective"].type.choices == OBJECTIVES
    assert tuple(options["index"].type.choices) == get_args(Index)
    assert tuple(options["on_full"].type.choices) == get_args(OnFull)


def test_usage_errors_are_one_line(refused) -> None:
    assert "'frobnicate'" in refused("frobnicate")
    assert "PROBLEM" in refused("plan")
    assert "nova plan --help" in refused("plan")
    assert "--frob" in refused("plan", "x.yaml", "--frob")
    assert "'fish'" in refused("completion", "cmd")


def test_no_command_shows_help(nova) -> None:
    result = nova()
    assert result.exit_code == 2
    assert "Commands:" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(nova, shell: str) -> None:
    result = nova("completion", shell)
    assert result.exit_code == 0
    assert "_NOVA_COMPLETE" in result.stdout


def test_completion_knows_commands_and_strategies() -> None:
    def complete(words: str, at: int) -> list[str]:
        environment = os.environ | {
            "_NOVA_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
        }
        program = "import sys; sys.argv[0] = 'nova'; from nova_core.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.split()

    assert set(complete("nova pl", 1)) == {"plain,plan", "plain,place", "plain,plot"}
    assert "plain,top-c" in complete("nova plan x.yaml --strategy t", 4)


def test_schema_is_that_of_the_types(nova) -> None:
    import json

    from nova_core.schemas import schema_of

    for name in ("problem", "plan"):
        result = nova("schema", name)
        assert json.loads(result.stdout) == schema_of(name)


# --- commands of other packages ------------------------------------------------------------------


@click.command(short_help="Greet.")
def greet() -> None:
    """Greet."""
    click.echo("hello")


def install(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    found = [EntryPoint(name, place, "nova.commands") for name, place in places.items()]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: found if group == "nova.commands" else [],
    )


def test_commands_of_other_packages_join(monkeypatch, nova) -> None:
    install(monkeypatch, greet=f"{__name__}:greet")
    assert "greet       Greet." in nova("--help").stdout
    assert nova("greet").stdout == "hello\n"


def test_a_broken_package_spoils_only_its_own_command(monkeypatch, nova, refused) -> None:
    install(monkeypatch, broken="no_such_module:thing", wrong=f"{__name__}:install")
    result = nova("--help")
    assert result.exit_code == 0
    assert "broken" in result.stdout
    assert "no_such_module" in refused("broken", "some", "--arguments")
    assert "no click command" in refused("wrong")


def test_a_package_cannot_take_a_name_of_ours(monkeypatch, nova) -> None:
    install(monkeypatch, version=f"{__name__}:greet", schema=f"{__name__}:greet")
    assert nova("schema").stdout != "hello\n"


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (PermissionError(13, "Permission denied", "/root/x"), 2, "/root/x: Permission denied"),
        (IsADirectoryError(21, "Is a directory", "x"), 2, "x: Is a directory"),
        (MemoryError("Unable to allocate 8 TiB"), 2, "out of memory: Unable to allocate 8 TiB"),
    ],
)
def test_errors_from_below_are_one_line(
    monkeypatch, error: BaseException, code: int, told: str
) -> None:
    @click.command()
    def fails() -> None:
        raise error

    monkeypatch.setattr(cli_module, "load_command", lambda name, place: fails)
    result = CliRunner().invoke(cli, ["plan"], prog_name="nova")
    assert result.exit_code == code
    assert told in result.stderr
    assert "Traceback" not in result.output


def test_a_reader_that_leaves_is_not_told_about(problem: Path) -> None:
    command = [*NOVA, "plan", str(problem), "--no-baselines"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_signals_really_end_it(problem: Path, number: signal.Signals, code: int, said: str) -> None:
    # The status line proves that the command has begun before it is interrupted.
    program = (
        "import signal, time, nova_core.commands.shared as s\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # under nohup, it is ignored
        "def wait(*_, **__): print('begun', flush=True); time.sleep(30)\n"
        "s.load_problem = wait\n"
        "from nova_core.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "plan", str(problem)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, told = process.communicate(timeout=20)
    assert process.returncode == code
    assert told.strip() == f"nova: error: {said}"


def test_a_terminal_without_unicode_gets_question_marks(problem: Path) -> None:
    done = run(
        "plan",
        str(problem),
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"},
    )
    assert done.returncode == 0, done.stderr
    assert "two regions" in done.stdout
