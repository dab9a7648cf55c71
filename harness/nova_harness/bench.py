"""The kernel benchmark: how long the optimizer takes, and how that grows with the topology."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_harness.measurement import REFINE, STEPS, Case, Measurement

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.table import Table

PLOT_FORMATS = ("png", "svg", "pdf")
# Kernels run on one thread; libraries that would start more by themselves are told not to.
ONE_THREAD = dict.fromkeys(
    ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
PROBLEM_FILES = ("nodes.csv", "joins.csv")


def synthetic_cases(
    sizes: Sequence[int], heterogeneity: float, seed: int, repeat: int
) -> list[Case]:
    """Generated topologies of the given numbers of nodes."""
    return [
        Case(nodes=size, heterogeneity=heterogeneity, seed=seed, repeat=repeat) for size in sizes
    ]


def instance_cases(path: Path, repeat: int) -> list[Case]:
    """An instance directory, or all those directly below; least and most heterogeneous capacities.

    Raises:
        NovaError: when there is none.
    """
    directories = [path, *sorted(path.iterdir())] if path.is_dir() else []
    found = [d for d in directories if all((d / name).is_file() for name in PROBLEM_FILES)]
    if not found:
        raise NovaError(f"{path}: no directory with {' and '.join(PROBLEM_FILES)}")
    cases = []
    for directory in found:
        with (directory / PROBLEM_FILES[0]).open(encoding="utf-8") as file:
            header = file.readline().strip().split(",")
        columns: list[str | None] = [name for name in header if name.startswith("capacity")]
        columns = columns or [None]
        least_and_most = dict.fromkeys((columns[0], columns[-1]))
        cases += [Case(path=str(directory), capacity=c, repeat=repeat) for c in least_and_most]
    return cases


def run_case(case: Case) -> list[Measurement]:
    """Measure all steps on one problem, in a process of its own.

    Raises:
        NovaError: with what the process said, when it fails.
    """
    import msgspec

    answer = run_apart("measure_kernels", case, case.label, ONE_THREAD)
    return msgspec.json.decode(answer, type=list[Measurement])


def run_apart(module: str, case: object, label: str, environment: Mapping[str, str]) -> bytes:
    """Run a module of the harness in a process of its own; return what it wrote to stdout.

    Args:
        module: its name.
        case: its only argument, as JSON.
        label: what errors call the case.
        environment: variables set besides this process's.

    Raises:
        NovaError: with what the process said, when it fails.
    """
    import msgspec

    done = subprocess.run(
        [sys.executable, "-m", f"nova_harness.{module}", msgspec.json.encode(case).decode()],
        capture_output=True,
        env=os.environ | environment,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"ended with status {done.returncode}"
        raise NovaError(f"bench: {label}: {reason.removeprefix('nova: error: ')}")
    return done.stdout


def exponents(measurements: Sequence[Measurement]) -> dict[str, float]:
    """Per step the power of the number of nodes by which time grows; 1 is linear.

    The slope of the least-squares line through log time over log nodes of the synthetic problems;
    steps measured at fewer than two sizes are left out.
    """
    import numpy as np

    found = {}
    for step in STEPS:
        nodes, seconds = _curve(measurements, step)
        if len(set(nodes)) > 1:
            found[step] = float(np.polyfit(np.log(nodes), np.log(seconds), 1)[0])
    return found


def _curve(measurements: Sequence[Measurement], step: str) -> tuple[list[int], list[float]]:
    rows = sorted((m.nodes, m.median) for m in measurements if m.synthetic and m.step == step)
    return [nodes for nodes, _ in rows], [seconds for _, seconds in rows]


def summary_table(measurements: Sequence[Measurement]) -> Table:
    """Median times of every problem and step, with memory, objective and exponents."""
    from nova_core import console

    growth = exponents(measurements)
    table = console.table(
        "Kernels, warm, one core, median time",
        ["problem", ">nodes", ">joins", "step", ">time", ">peak MB", ">objective, ms", ">90P, ms",
         ">cut", ">overloaded"],
        caption="Time grows with the number of nodes to the power of "
        + ", ".join(f"{power:.2f} ({step})" for step, power in growth.items())
        if growth
        else None,
    )  # fmt: skip
    for column in table.columns:
        column.no_wrap = True
    previous = None
    for m in measurements:
        repeated = m.problem == previous
        if previous is not None and not repeated:
            table.add_section()
        previous = m.problem
        table.add_row(
            "" if repeated else m.problem,
            "" if repeated else f"{m.nodes:,}",
            "" if repeated else f"{m.joins:,}",
            m.step,
            duration(m.median),
            "-" if m.peak_bytes is None else f"{m.peak_bytes / 1e6:,.1f}",
            "" if m.objective is None else console.number(m.objective),
            "" if m.p90 is None else console.number(m.p90),
            "" if m.joins_cut is None else f"{m.joins_cut:,}",
            "" if m.overloaded is None else f"{m.overloaded:,}",
        )
    return table


def duration(seconds: float) -> str:
    """Seconds for a table."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def write_csv(measurements: Sequence[DataclassInstance], path: Path) -> None:
    """Write one row per measurement, of which there are some; times in seconds, memory in bytes.

    Raises:
        NovaError: when the file cannot be written.
    """
    from nova_core.model.files import write_text

    text = io.StringIO()
    names = [f.name for f in fields(measurements[0])]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(m) for m in measurements)
    write_text(path, text.getvalue())


def plot_format(path: Path) -> str:
    """The image format a file name asks for.

    Raises:
        NovaError: for any other than PNG, SVG and PDF.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in PLOT_FORMATS:
        known = ", ".join(f".{name}" for name in PLOT_FORMATS)
        raise NovaError(f"{path}: unknown image format {path.suffix!r}; expected one of {known}")
    return suffix


def write_plot(measurements: Sequence[Measurement], path: Path) -> None:
    """Draw median time over number of nodes, both logarithmic, with a linear slope to compare.

    Synthetic problems make the lines, instances single marks.

    Raises:
        NovaError: for an unknown format, or when the file cannot be written.
    """
    from matplotlib.figure import Figure

    from nova_core.model.files import atomic_write

    image_format = plot_format(path)
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for index, step in enumerate(STEPS):
        colour = f"C{index}"
        nodes, seconds = _curve(measurements, step)
        if nodes:
            axes.plot(nodes, seconds, "o-", color=colour, label=step)
        single = [(m.nodes, m.median) for m in measurements if not m.synthetic and m.step == step]
        if single:
            label = None if nodes else step
            axes.plot(*zip(*single, strict=True), "x", color=colour, label=label)
    nodes, seconds = _curve(measurements, REFINE)
    if len(nodes) > 1:
        linear = [seconds[-1] * count / nodes[-1] for count in nodes]
        axes.plot(nodes, linear, ":", color="grey", label="linear")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="nodes",
        ylabel="time, s",
        title="Optimizer kernels: warm, one core, median",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    with atomic_write(path) as file:
        figure.savefig(file, format=image_format, dpi=150)


def progress(cases: Sequence[Case]) -> Iterator[list[Measurement]]:
    """Measure case after case, saying on stderr which one is at work."""
    from nova_core import console

    for case in cases:
        console.say(f"measuring {case.label}")
        yield run_case(case)
