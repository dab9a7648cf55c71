"""Reports of runs: one self-contained page, and its figures as files."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nova_core.errors import NovaError
from nova_core.plotting.parts import BY_PAIR
from nova_harness.report import facts, summary, tables
from nova_harness.report.comparison import Ratio, ratios, subject_of
from nova_harness.report.figures import (
    Mark,
    Trend,
    draw_courses,
    draw_distributions,
    draw_loads,
    draw_percentiles,
    draw_trends,
    marks_of,
    name_of,
)
from nova_harness.report.groups import (
    Distribution,
    Group,
    Key,
    Setting,
    distributions,
    finished_cells,
    groups_of,
    key_of,
)
from nova_harness.report.inline_svg import COLOURS, inline_svg
from nova_harness.report.placement_map import draw_map
from nova_harness.report.recovery import Course, course_of
from nova_harness.report.wording import count
from nova_harness.results.run_folder import CellFolder, RunError, RunFolder, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cells = Mapping[Key, Sequence[tuple[Path, CellFolder]]]
Distribute = Callable[[Cells], Mapping[Key, Distribution]]
Advance = Callable[[int, int], None]


@dataclass(frozen=True)
class Report:
    """The contents of a report.

    Attributes:
        runs: their folders.
        groups: what is compared.
        subject: the report's subject, a strategy, or None.
        ratios: the subject against the best of the others.
        courses: of cells whose hosts were disturbed, one per strategy.
    """

    runs: list[RunFolder]
    groups: list[Group]
    subject: str | None
    ratios: list[Ratio]
    courses: list[Course]

    @property
    def strategies(self) -> list[str]:
        """The subject first."""
        names = dict.fromkeys(cell.facts.strategy for run in self.runs for cell in run.cells)
        return sorted(names, key=lambda name: (name != self.subject, name))


def make_report(
    runs: Sequence[Path], *, subject: str | None = None, distribute: Distribute = distributions
) -> Report:
    """Read runs and compare their strategies.

    Args:
        runs: folders of runs.
        subject: the strategy that is compared with the others; None for nova.
        distribute: computes the pooled latencies of groups.

    Raises:
        NovaError: for folders without a run, and for a subject that did not run.
    """
    if len({path.resolve() for path in runs}) < len(runs):
        raise RunError(f"{', '.join(map(str, runs))}: a run is given twice")
    folders = [read_run(path) for path in runs]
    cells = finished_cells(folders)
    names = list(dict.fromkeys(cell.facts.strategy for run in folders for cell in run.cells))
    if subject is not None and subject not in names:
        raise RunError(f"strategy {subject!r}: did not run; {', '.join(names) or 'none'} did")
    groups = groups_of(cells, distribute(cells))
    about = subject_of(names, subject)
    comparisons = ratios(groups, about) if about else []
    return Report(folders, groups, about, comparisons, _courses(folders, about))


def _courses(runs: Sequence[RunFolder], subject: str | None) -> list[Course]:
    """The first disturbed cell of each strategy, the subject's first."""
    first: dict[str, Course] = {}
    cells = [cell for run in runs for cell in run.cells]
    for cell in sorted(cells, key=lambda one: (one.facts.strategy != subject, one.name)):
        if cell.facts.strategy not in first and (course := course_of(cell)) is not None:
            first[cell.facts.strategy] = course
    return list(first.values())


def write_report(
    report: Report, output: Path, figures: Path | None = None, advance: Advance = lambda *_: None
) -> list[Path]:
    """Write a report as one HTML file, and its figures as PNG and SVG files.

    Args:
        report: of `make_report`.
        output: the HTML file.
        figures: a directory for the figures' files; None writes no such files.
        advance: called with figures drawn and figures in all.

    Returns:
        What was written.

    Raises:
        NovaError: when something cannot be written.
    """
    from nova_core.io.safe_files import make_directory, write_text
    from nova_core.plotting import save_figure

    drawn = _Drawn(report, advance)
    text = _render(report, drawn)
    written = []
    if figures is not None:
        make_directory(figures)
        for name, figure in drawn.figures.items():
            for suffix in (".png", ".svg"):
                path = figures / f"{name}{suffix}"
                save_figure(lambda figure=figure: figure, path)  # type: ignore[misc]
                written.append(path)
    write_text(output, text)
    return [output, *written]


def _render(report: Report, drawn: _Drawn) -> str:
    environment = Environment(
        loader=PackageLoader("nova_harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    runs, groups, subject = report.runs, report.groups, report.subject
    templates = files("nova_harness.report") / "templates"
    style, script = ((templates / name).read_text("utf-8") for name in ("style.css", "sort.js"))
    engines = {group.setting.engine for group in groups}
    return environment.get_template("report.html.j2").render(
        engine="the same engine" if len(engines) < 2 else f"{len(engines)} engines",
        title=facts.title(runs),
        version=version("nova-placement"),
        style=style,
        script=script,
        # No other script may run, whatever names and texts of runs hold.
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        facts=facts.facts_line(runs, groups),
        tiles=summary.tiles(report.ratios, subject, report.courses),
        notes=summary.notes(runs, groups, report.ratios, subject),
        strategies=facts.descriptions(report.strategies, runs),
        colours={name: COLOURS[mark.colour] for name, mark in drawn.marks.items()},
        stress=any(group.setting.stress for group in groups),
        subject=subject,
        table=tables.comparison_table(groups, report.strategies, subject),
        table_note=tables.table_note(groups) if groups else "",
        scenes=drawn.scenes(),
        courses=drawn.courses(),
        recoveries=tables.recovery_rows(report.courses),
        cells=tables.cell_rows(runs),
        carried=tables.carried_rows(runs),
        busy=tables.busy_rows(runs, report.strategies),
        runs=[{"name": r.name, "path": str(r.path), "facts": facts.run_facts(r)} for r in runs],
        pooled=" over all repetitions" + (" and runs" if len(runs) > 1 else ""),
    )


class _Drawn:
    """Figures, drawn once for the page and for files."""

    def __init__(self, report: Report, advance: Advance) -> None:
        self.report = report
        self.figures: dict[str, Figure] = {}
        self.marks: dict[str, Mark] = marks_of(report.strategies, report.subject)
        self._advance = advance
        self._rates = sorted({group.setting.rate for group in report.groups})
        self._total = len(self._rates) * (4 + len(report.strategies)) + bool(report.courses)

    def scenes(self) -> list[dict[str, Any]]:
        """A set of figures per rate."""
        return [self._scene(rate) for rate in self._rates]

    def courses(self) -> str:
        """Disturbed cells over time; empty where there are none."""
        if not self.report.courses:
            return ""
        label = "Latency and results per second over time, under each strategy"
        return self._svg("over-time", draw_courses(self.report.courses, self.marks), label)

    def _svg(self, name: str, figure: Figure, label: str) -> str:
        self.figures[name] = figure
        svg = inline_svg(figure, f"f{len(self.figures)}", label)
        self._advance(len(self.figures), self._total)
        return svg

    def _scene(self, rate: float) -> dict[str, Any]:
        groups = [group for group in self.report.groups if group.setting.rate == rate]
        suffix = f"-r{rate:g}" if len(self._rates) > 1 else ""
        strategies = self.report.strategies
        chapters: list[tuple[str, str, Callable[[], Figure], str]] = [
            (
                "latency-cdf",
                "How long results take",
                lambda: draw_distributions(groups, self.marks),
                "Share of all results that have arrived within a time (logarithmic). Further left "
                "is sooner; a curve that ends below 100 % belongs to a strategy whose results had "
                "not all arrived when the run was ended.",
            ),
            (
                "latency-over-results",
                "Latency while results come in",
                lambda: draw_trends(groups, self._trends(groups), self.marks),
                "From left to right, the results of one repetition in the order they arrived; the "
                "dot is its end, so further right is more results in the same time. Lines are "
                "medians of short stretches, bands hold 90 % of their results. A line that climbs "
                "belongs to hosts that cannot keep up, and would climb on.",
            ),
            (
                "latency-percentiles",
                "The slowest results",
                lambda: draw_percentiles(groups, self.marks),
                "Mean latency and high percentiles (logarithmic): what 90, 99, 99.9 and 99.99 % of "
                "results do not exceed. An arrow marks a lower bound: what had not arrived when "
                "the run was ended would be above it.",
            ),
        ]
        if any(group.hosts for group in groups):
            limited = all(load.limit for group in groups for load in group.hosts)
            unit = "percent of what it may use" if limited else "cores"
            full = "; orange from 80 %, red from 95 %: such a host is full." if limited else "."
            chapters.append(
                (
                    "host-load",
                    "How busy hosts are",
                    lambda: draw_loads(groups, strategies),
                    f"CPU used by each host on average over the measured time, in {unit}" + full,
                )
            )  # fmt: skip
        figures = [
            {
                "title": title,
                "svg": self._svg(name + suffix, draw(), f"{title}: {caption}"),
                "caption": caption,
            }
            for name, title, draw, caption in chapters
        ]
        maps, key = self._maps(rate, suffix)
        return {"rate": f"{rate:g}", "figures": figures, "maps": maps, "key": key}

    def _trends(self, groups: Sequence[Group]) -> dict[tuple[str, Setting], Trend]:
        """Trends of the first repetition of each group."""
        shown = {(group.strategy, group.setting) for group in groups}
        trends: dict[tuple[str, Setting], Trend] = {}
        for key, members in finished_cells(self.report.runs).items():
            if key in shown:
                _, cell = min(members, key=lambda member: member[1].facts.repetition)
                trends[key] = Trend.of(cell.latencies_us()[1])
        return trends

    def _maps(self, rate: float, suffix: str) -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
        maps, key = [], []
        for strategy in self.report.strategies:
            cells = [
                (run, cell)
                for run in self.report.runs
                for cell in run.cells
                if cell.facts.strategy == strategy
                and cell.facts.rate == rate
                and (cell.path / "plan.json").is_file()
            ]
            if not cells:
                continue
            run, cell = cells[0]
            entry = {"title": strategy, "svg": "", "caption": ""}
            try:
                plan = run.plan(cell)
            except NovaError as error:
                maps.append(entry | {"caption": f"The placement cannot be drawn: {error}"})
                continue
            matrix = plan.problem.matrix
            if len(matrix) <= len(BY_PAIR):
                key = [
                    (plan.problem.pair_name(pair), COLOURS[BY_PAIR[pair]])
                    for pair in range(len(matrix))
                ]
            hosts = len(set(plan.instances.node.tolist()))
            over = int((plan.load > plan.problem.nodes.capacity * (1 + 1e-9)).sum())
            what = "operator" if plan.problem.queries else "join"
            text = (
                f"{count(plan.operator_count, what)} in {count(len(plan.instances), 'piece')} "
                f"on {count(hosts, 'host')}"
            )
            if over:
                text += f"; {count(over, 'host is', 'hosts are')} given more than it can take"
            plans = {(c.path / "plan.json").read_bytes() for _, c in cells}
            if len(plans) > 1:
                text += f". The plan of {name_of(key_of(cell)[1])}; others differ"
            if plan.problem.queries:
                maps.append(entry | {"caption": f"{text}. Whole queries are not drawn."})
                continue
            svg = self._svg(f"placement-{strategy}{suffix}", draw_map(plan), f"{strategy}: {text}")
            maps.append(entry | {"svg": svg, "caption": f"{text}."})
        return maps, key
