"""What ``nova topology`` tells: errors of a cost space, and how measured latencies behave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nova_core import console

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.costspace import CostSpace, ErrorReport, TriangleReport
    from nova_core.costspace.statistics import Statistics
    from nova_core.model.problem import Strings

WORST = 10


def and_heights(space: CostSpace) -> str:
    """What follows the dimensions when telling what a space is made of."""
    return "" if space.height is None else " and heights"


def error_dict(ids: Strings, space: CostSpace, report: ErrorReport, worst: int) -> dict[str, Any]:
    """Errors as plain values for JSON, with the worst nodes."""
    return {
        "pairs": report.pairs,
        "mae": report.mae,
        "median_error": report.median_error,
        "p90_error": report.p90_error,
        "median_relative": report.median_relative,
        "p90_relative": report.p90_relative,
        "bias": report.bias,
        "stress": report.stress,
        "median_height": _height(space, 50),
        "p90_height": _height(space, 90),
        "worst_nodes": [
            {
                "node": str(ids[node]),
                "mae": float(report.node_mae[node]),
                "height": None if space.height is None else float(space.height[node]),
            }
            for node in report.worst_nodes(worst).tolist()
        ],
    }


def _height(space: CostSpace, percentile: float) -> float | None:
    import numpy as np

    return None if space.height is None else float(np.percentile(space.height, percentile))


def error_table(space: CostSpace, report: ErrorReport) -> Table:
    """How far estimates are from measurements."""
    table = console.table(f"Errors of {report.pairs:,} measured pairs", ["what", ">value"])
    rows = [
        ("mean absolute error, ms", console.number(report.mae, 2)),
        ("median absolute error, ms", console.number(report.median_error, 2)),
        ("90P absolute error, ms", console.number(report.p90_error, 2)),
        ("median relative error", _percent(report.median_relative)),
        ("90P relative error", _percent(report.p90_relative)),
        ("mean of estimate - measured, ms", console.number(report.bias, 2)),
        ("stress", console.number(report.stress, 3)),
    ]
    if space.height is not None:
        median, p90 = _height(space, 50), _height(space, 90)
        assert median is not None
        assert p90 is not None
        rows.append(("height, ms: median, 90P", f"{median:.1f}, {p90:.1f}"))
    for what, value in rows:
        table.add_row(what, value)
    return table


def worst_table(ids: Strings, space: CostSpace, report: ErrorReport, rows: int) -> Table:
    """The nodes whose estimates are worst."""
    from rich.markup import escape

    heights = [">height, ms"] if space.height is not None else []
    table = console.table("Worst nodes", ["node", ">mean absolute error, ms", *heights])
    for node in report.worst_nodes(rows or len(ids)).tolist():
        height = [] if space.height is None else [console.number(space.height[node])]
        table.add_row(escape(str(ids[node])), console.number(report.node_mae[node], 2), *height)
    return table


def _percent(share: float) -> str:
    return f"{console.number(100 * share)} %"


def statistics_table(name: str, found: Statistics) -> Table:
    """How measured latencies behave."""
    from rich.markup import escape

    table = console.table(escape(name), ["what", ">value"])
    p = found.percentiles
    asymmetry = "-" if found.both_ways == 0 else f"{console.number(found.asymmetric_share * 100)} %"
    for what, value in (
        ("nodes", f"{found.nodes:,}"),
        ("pairs measured", f"{found.pairs:,}"),
        ("coverage of all pairs", _percent(found.coverage)),
        ("measured others per node: least, median", f"{found.least_degree}, {found.degree:g}"),
        ("nodes connected", "all" if found.groups == 1 else f"no: {found.groups} groups"),
        ("latency, ms: mean", console.number(found.mean)),
        ("latency, ms: 10P, median, 90P, 99P", ", ".join(console.number(p[k]) for k in p)),
        ("pairs measured both ways", f"{found.both_ways:,}"),
        ("of them more than 10 % apart", asymmetry),
        *_triangles(found.triangles),
    ):
        table.add_row(what, value)
    return table


def _triangles(found: TriangleReport | None) -> list[tuple[str, str]]:
    if found is None:
        return [("triangles", "not looked at: too many nodes")]
    return [
        ("triangles looked at", f"{found.triples:,}"),
        ("of them violate the triangle inequality", _percent(found.share)),
        ("longest side over the others' sum, in those: mean", f"+{_percent(found.severity)}"),
        ("pairs with a shorter detour", _percent(found.pairs_with_detour)),
        (
            "saved by the detour, of those: median, 90P",
            f"{_percent(found.median_saving)}, {_percent(found.p90_saving)}",
        ),
    ]


__all__ = ["WORST", "error_dict", "error_table", "statistics_table", "worst_table"]
