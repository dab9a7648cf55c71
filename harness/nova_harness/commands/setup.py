"""The command ``nova setup``: installs what the demo and the tests need on this machine."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import click

from nova_core import console, programs
from nova_core.errors import NovaError


@dataclass(frozen=True)
class Needs:
    """What something needs of a machine, beside virtual hosts.

    Attributes:
        programs: names in `programs.PROGRAMS`.
        engines: that run in it.
    """

    programs: tuple[str, ...]
    engines: tuple[str, ...]


NEEDS = {
    "demo": Needs(programs.DEMO, ("flink",)),
    "test": Needs(programs.TESTS, ("flink", "storm", "kafka")),
}


@click.command()
@click.argument("purpose", type=click.Choice(list(NEEDS)))
@click.option("--yes", "-y", is_flag=True, help="Install missing system packages unasked.")
def setup(purpose: str, yes: bool) -> None:
    """Install what this machine lacks for the demo, or for the tests.

    These are packages of the system (as root, or through sudo) and engines. `nova demo` and
    `./nova test` do this by themselves. The demo needs everything; tests that cannot run are named
    and left out, unless the variable CI is set.
    """
    prepare(NEEDS[purpose], yes=yes, partly=purpose == "test" and not in_ci())


def in_ci() -> bool:
    """Whether continuous integration runs this, where everything must be present."""
    return bool(os.environ.get("CI"))


def prepare(needs: Needs, *, yes: bool, partly: bool = False) -> None:
    """Install what the machine lacks.

    Args:
        needs: what must be here at the end.
        yes: whether packages are installed unasked.
        partly: whether to report what cannot be installed, and continue without it.

    Raises:
        NovaError: naming what is missing and how to get it.
    """
    from nova_core.engines import load
    from nova_testbed.rack import requirements

    missing = programs.absent(needs.programs)
    if missing:
        try:
            _refuse_without_root(missing)
            if _agreed(missing, yes):
                programs.install(missing, console.say)
        except NovaError as error:
            if not partly:
                raise
            console.say(str(error))
    reason = requirements.missing()
    if reason is not None:
        _leave_out("virtual hosts", reason, partly)
    for program in programs.absent(needs.programs):
        _leave_out(program.purpose, program.missing, partly)
    for name in needs.engines:
        try:
            # Quick where it is installed; only rebuilds what has changed.
            load(name).install(console.say)
        except NovaError as error:
            _leave_out(name, str(error), partly)


def _refuse_without_root(missing: list[programs.Program]) -> None:
    from nova_testbed.rack.privileges import is_root, sudo_works

    if not is_root() and not sudo_works():
        names = ", ".join(programs.packages(missing))
        raise NovaError(
            f"missing: {names}; run `{programs.install_command(missing)}` (there is neither root "
            "nor sudo without a password here; `sudo -v` first)"
        )


def _agreed(missing: list[programs.Program], yes: bool) -> bool:
    if yes or in_ci():
        return True
    names, command = ", ".join(programs.packages(missing)), programs.install_command(missing)
    if not sys.stdin.isatty():
        raise NovaError(f"missing: {names}; run `{command}`, or call with --yes")
    return click.confirm(f"Missing: {names}. Run `{command}`?", err=True)


def _leave_out(what: str, reason: str, partly: bool) -> None:
    if not partly:
        raise NovaError(reason)
    console.say(f"THE TESTS OF {what.upper()} ARE LEFT OUT: {reason}")
