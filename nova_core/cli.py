"""The command ``nova``: a thin group that loads each command only when it is used.

Commands of other packages join through the entry-point group ``nova.commands`` (name to
``module:click_command``; ``GROUP.NAME`` joins an `OpenGroup`). ``nova --help`` imports every
command's module, so such a module must import what is heavy inside its functions.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from nova_core import extras, scratch
from nova_core.console import fail
from nova_core.errors import NovaError
from nova_core.lazy_commands import absent_command, installed_commands, load_command
from nova_core.suggestions import nearest

INTERRUPTED = 130
TERMINATED = 128  # and the number of the signal
BROKEN_PIPE = 141
INTERNAL = 70  # EX_SOFTWARE

# In the order a newcomer meets them; commands of other packages come before the last two.
COMMANDS = {
    name: f"nova_core.commands.{name}:{name}"
    for name in (
        "plan",
        "check",
        "explain",
        "plot",
        "diff",
        "replan",
        "live",
        "serve",
        "compare",
        "pareto",
        "topology",
        "engines",
        "translate",
        "tour",
    )
}
LAST_COMMANDS = {name: f"nova_core.commands.{name}:{name}" for name in ("schema", "completion")}


class TerminatedError(KeyboardInterrupt):
    """A signal asks to end; whatever cleans up after Ctrl-C, such as virtual hosts, does so."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


def _terminate(number: int, frame: object) -> NoReturn:
    raise TerminatedError(number)


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for, and ends with Nova's exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, those of other packages included."""
        others = sorted(set(installed_commands()) - set(COMMANDS) - set(LAST_COMMANDS))
        return [*COMMANDS, *others, *LAST_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None; a broken one fails with the reason when it is run."""
        place = COMMANDS.get(cmd_name) or LAST_COMMANDS.get(cmd_name)
        place = place or installed_commands().get(cmd_name)
        return absent_command(cmd_name) if place is None else load_command(cmd_name, place)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; end quietly when the output is closed, and name a missing extra."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Click's exit code for it is 1, which means that the answer is no.
            _discard_output()
            ctx.exit(BROKEN_PIPE)
        except ModuleNotFoundError as error:
            if text := extras.missing(ctx.invoked_subcommand or "nova", error):
                raise extras.MissingExtraError(text) from error
            raise

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run; in standalone mode errors become one line on stderr and an exit code."""

        def run() -> Any:
            return super(LazyGroup, self).main(args, prog_name, complete_var, False, **extra)

        if not standalone_mode:
            return run()
        sys.exit(_guarded(run))


def _discard_output() -> None:
    """Discard buffered output: the interpreter would try, and fail, to write it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _guarded(run: Callable[[], Any]) -> int:
    """Run and return the exit code; anything the user can put right becomes one line."""
    try:
        code = run()
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return NovaError.exit_code
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        see = f" (see {context.command_path} --help)" if context is not None else ""
        fail(f"{error.format_message().rstrip('.')}{_meant(error)}{see}")
        return NovaError.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        # Click hands on an interrupt as an error of its own.
        for one in (error, error.__cause__):
            if isinstance(one, TerminatedError):
                fail(f"ended by {one.signal.name}")
                return TERMINATED + one.signal
        fail("interrupted")
        return INTERRUPTED
    except NovaError as error:
        fail(str(error))
        return error.exit_code
    except OSError as error:
        if error.filename is None:
            _discard_output()
        if error.errno == errno.EPIPE:
            return BROKEN_PIPE
        where = f"{error.filename}: " if error.filename is not None else ""
        fail(f"{where}{error.strerror or error}")
        return NovaError.exit_code
    except MemoryError as error:
        fail(f"out of memory{': ' if str(error) else ''}{error}")
        return NovaError.exit_code
    except Exception as error:
        fail(f"internal error: {type(error).__name__}: {error}; {_keep_traceback()}")
        return INTERNAL
    return code if isinstance(code, int) else 0


def _meant(error: click.ClickException) -> str:
    """What somebody may have meant who named none of an option's choices, or a command of ours."""
    name: str | None = None
    known: Sequence[str] = ()
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind = error.param.type
        found = re.match("'(.*)' is not one of", error.message)
        if isinstance(kind, click.Choice) and found is not None:
            name, known = found[1], [str(choice) for choice in kind.choices]
    elif isinstance(error, click.exceptions.NoSuchCommand) and error.ctx is not None:
        group = error.ctx.command
        # Click knows those that are loaded only.
        if isinstance(group, click.Group) and not error.possibilities:
            name, known = error.command_name, group.list_commands(error.ctx)
    near = "" if name is None else nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _keep_traceback() -> str:
    """Write the traceback of the present error to a new file; returns where it is."""
    text = f"nova {' '.join(sys.argv[1:])}\n{traceback.format_exc()}"
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="nova-",
            suffix=".traceback",
            dir=scratch.lasting(),
            delete=False,
            errors="backslashreplace",
        ) as file:
            file.write(text)
    except OSError as error:
        return f"its traceback cannot be written: {error.strerror or error}"
    return f"its traceback is in {file.name}"


EPILOG = """\b
Exit codes:
  0    done; for check and diff: the plan holds, the plans agree
  1    the answer is no: a constraint is broken, the plans differ
  2    bad input, or a problem that cannot be solved; one line on stderr says why
  70   an error in Nova itself; one line on stderr says where its traceback is
  130  interrupted
  143  ended by SIGTERM (129: by SIGHUP)

With --json the answer, and nothing else, goes to stdout."""


@click.command(
    cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(None, "-V", "--version", package_name="nova-placement", prog_name="nova")
def cli() -> None:
    """Decide where each piece of a stream join runs, and into how many pieces it is cut.

    Start with `nova tour`, which shows an example, or `nova demo`, which runs joins on hosts.
    """


def _require_streams() -> None:
    """Ensure that the standard streams are open: a file opened later would take their place.

    A closed stdin or stderr becomes ``/dev/null``; a closed stdout is an error, as the answer would
    be lost.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        fail("standard output is closed; send it to /dev/null if nobody needs the answer")
        sys.exit(NovaError.exit_code)


def main() -> NoReturn:
    """Entry point of the console script."""
    _require_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark instead of a traceback.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    # SIGHUP: the terminal, or the connection to it, is gone.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)
    # Most commands need no temporary files, so they need no place for them.
    with suppress(OSError):
        scratch.run_folder()
    cli()
    raise AssertionError("unreachable: the group ends the process")
