"""Shared by the benchmarks of users: each case runs in its own process, and results become tables.

A benchmark is a module with a ``Case`` that has a ``label``, a ``Measurement``, a
function ``measure`` from a case to measurements, and ``summary_table``. Each case has its own
process, so that its memory is measured alone. ``python -m nova_harness.bench.base MODULE CASE``,
with the case as JSON, writes a JSON list of measurements to stdout.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nova_core import console
from nova_core.errors import NovaError
from nova_core.kernel_cache import SETTING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Kernels run on one thread; these variables keep libraries from starting more.
ONE_THREAD = dict.fromkeys(
    ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
# Small problems would run kernels as plain Python until those are compiled.
COMPILED = {SETTING: "compile"}

M = TypeVar("M", bound="DataclassInstance")


def measured(module: str, cases: Sequence[Any], kind: type[M]) -> list[M]:
    """Measure cases in turn, each in its own process; name the current one on stderr.

    Args:
        module: its name.
        cases: of its ``Case``.
        kind: its ``Measurement``.

    Raises:
        NovaError: with the process's last message, when it fails.
    """
    measurements: list[M] = []
    for case in cases:
        console.say(f"measuring {case.label}")
        text = msgspec.json.encode(case).decode()
        run = subprocess.run(
            [sys.executable, "-P", "-m", __spec__.name if __spec__ else __name__, module, text],
            capture_output=True,
            env=os.environ | COMPILED | ONE_THREAD,
            check=False,
        )
        if run.returncode:
            lines = run.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"ended with status {run.returncode}"
            raise NovaError(f"bench: {case.label}: {reason.removeprefix('nova: error: ')}")
        measurements += msgspec.json.decode(run.stdout, type=list[kind])  # type: ignore[valid-type]
    return measurements


def answer(
    measurements: Sequence[DataclassInstance],
    table: Callable[[Any], Any],
    *,
    as_json: bool,
    output: Path | None = None,
    **more: Any,
) -> None:
    """Print measurements, and write them if ``output`` is given.

    Args:
        measurements: of one benchmark.
        table: makes the table that is printed.
        as_json: print JSON, with ``more``.
        output: a CSV file; times in seconds, memory in bytes.
        more: further fields of the JSON.

    Raises:
        NovaError: when the file cannot be written.
    """
    if output is not None:
        from nova_core.io.safe_files import write_text

        text = io.StringIO()
        names = [one.name for one in fields(measurements[0])]
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(one) for one in measurements)
        write_text(output, text.getvalue())
    if as_json:
        console.print_json({"measurements": measurements, **more})
    else:
        console.show(table(measurements))


def duration(seconds: float) -> str:
    """Seconds for a table."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def main(module: str, case: str) -> None:
    """Measure a case of a benchmark in this process."""
    try:
        benchmark = import_module(module)
        measurements = benchmark.measure(msgspec.json.decode(case, type=benchmark.Case))
    except NovaError as error:
        console.fail(str(error))
        sys.exit(error.exit_code)
    sys.stdout.buffer.write(msgspec.json.encode(measurements))


if __name__ == "__main__":
    main(*sys.argv[1:])
