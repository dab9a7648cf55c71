"""Every constraint of a plan in tables, checked by Spark from its instances alone.

The constraints, their names and the report are those of `nova_core.model.verify`; so are the sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from nova_core.errors import PlanError
from nova_core.model.verify import ACCEPTABLE, CONSTRAINTS, TOLERANCE, Report, Violation
from nova_workloads.scale.cells import meets
from nova_workloads.scale.part import RATES, Query
from nova_workloads.scale.tables import Problem, parquet_files, read_files, small_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

SPELLED_OUT = 20
# Cells of the picture along each side.
GRID = 256
QUANTILES = (0.5, 0.9, 0.99, 1.0)
SIDES = ("left", "right")
BOUNDS = ("left_begin", "left_end", "right_begin", "right_end")


def check(
    spark: SparkSession,
    problem: Problem,
    pairs: DataFrame,
    tables: Mapping[str, Path],
    query: Query,
    place: Path,
    breaks: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Check a plan and sum it up.

    Args:
        spark: a session.
        problem: what was placed.
        pairs: its pairs with their ends (`nova_workloads.scale.anchors.write_pairs`).
        tables: the plan's tables: ``instances``, and ``partitions`` if any join is cut.
        query: what is the same everywhere; its parameters are those of the plan.
        place: where ``density.npz`` for the picture goes.
        breaks: constraints the plan says it breaks on purpose.

    Returns:
        ``report`` as `Report.to_dict`, ``totals`` as a plan's header has them, ``latency`` (ms) and
        ``load`` (shares of capacity).
    """
    return _Check(spark, problem, pairs, tables, query, breaks).run(place)


@dataclass(frozen=True)
class _Rule:
    """A rule that no row of a frame may break, with names and texts for violations.

    Attributes:
        name: of the constraint.
        broken: whether a row breaks it; null is no.
        key: column that names the row.
        amount: actual value.
        limit: allowed value.
        text: message of the violation.
    """

    name: str
    broken: Column
    key: str
    amount: Column
    limit: Column
    text: Column


class _Check:
    """One check; the frames of rules are computed once, kept on disk, and read once for all."""

    def __init__(
        self,
        spark: SparkSession,
        problem: Problem,
        pairs: DataFrame,
        tables: Mapping[str, Path],
        query: Query,
        breaks: tuple[str, ...],
    ) -> None:
        self._problem = problem
        self._pairs = pairs
        self._nodes = problem.nodes(spark)
        self._query = query
        self._dimensions = len(problem.axes)
        self._accepted = ACCEPTABLE & set(breaks)
        self._cut = _partitions(spark, tables.get("partitions"))
        instances = _rows(spark, tables["instances"])
        self._instances = self._located(instances).persist(StorageLevel.DISK_ONLY)
        self._counts = dict.fromkeys(CONSTRAINTS, 0)
        self._broken: list[Violation] = []

    def _located(self, instances: DataFrame) -> DataFrame:
        """Instances with their pair, their node, and columns derived from both."""
        d, query = self._dimensions, self._query
        heights = ["heights"] if "height" in query.extras else []
        columns = ["pair", "operator", "join", "ends", "anchors", *heights, *RATES]
        pairs = self._pairs.select(*columns).hint("shuffle_hash")
        extras = [name for name in query.extras if name != "penalty"]
        nodes = self._nodes.select(
            F.col("id").alias("node"), "row", "position", "capacity", "worker", *extras
        ).hint("shuffle_hash")
        frame = (
            instances.select("operator", "node", *(F.col(b).cast("long").alias(b) for b in BOUNDS))
            .join(pairs, "operator", "left")
            .join(self._cut, "operator", "left")
            .join(nodes, "node", "left")
        )
        sizes = (F.coalesce(F.size(f"{side}_parts"), F.lit(1)) for side in SIDES)
        m, n = (size.cast("long") for size in sizes)
        legs = []
        for leg in range(3):
            squares = [
                F.pow(F.element_at("anchors", leg * d + k + 1) - F.element_at("position", k + 1), 2)
                for k in range(d)
            ]
            length = F.sqrt(sum(squares[1:], squares[0]))
            if heights:
                high = F.element_at("heights", leg + 1) + F.col("height")
                here = F.element_at("ends", leg + 1) == F.col("row")
                length = length + F.when(here, 0.0).otherwise(high)
            legs.append(length.alias(f"leg{leg}"))
        met = F.lit(True)
        for number in np.unique(query.requirement):
            alike = np.flatnonzero(query.requirement == number)
            met = met & (~F.col("join").isin(alike.tolist()) | meets(query, int(alike[0])))
        return frame.select(
            "pair",
            "operator",
            "node",
            "row",
            "capacity",
            "worker",
            *BOUNDS,
            *RATES,
            *(f"{side}_parts" for side in SIDES),
            m.alias("m"),
            n.alias("n"),
            *(_input(side).alias(f"{side}_input") for side in SIDES),
            *legs,
            met.alias("met"),
            *(F.element_at("position", k + 1).alias(f"x{k}") for k in range(min(d, 2))),
        )

    def run(self, place: Path) -> dict[str, Any]:
        try:
            return self._run(place)
        finally:
            self._instances.unpersist()

    def _look(self, frame: DataFrame, rules: Sequence[_Rule], *sums: Column) -> Row:
        """Read a frame once: count broken rules, spell out the worst violations, and sum up."""
        counted = [F.count_if(rule.broken).alias(f"_{k}") for k, rule in enumerate(rules)]
        facts = frame.agg(*counted, *sums).first()
        assert facts is not None
        for k, rule in enumerate(rules):
            self._counts[rule.name] += facts[f"_{k}"]
            if facts[f"_{k}"]:
                amount, limit = rule.amount.alias("a"), rule.limit.alias("l")
                shown = frame.where(rule.broken).select(
                    rule.key, amount, limit, rule.text.alias("t")
                )
                worst = shown.orderBy(F.desc(F.abs(F.col("a") - F.col("l"))), rule.key)
                accepted = rule.name in self._accepted
                self._broken.extend(
                    Violation(rule.name, row[rule.key], row["a"], row["l"], row["t"], accepted)
                    for row in worst.limit(SPELLED_OUT).collect()
                )
        return facts

    def _run(self, place: Path) -> dict[str, Any]:
        counts = self._counts
        facts = self._look(self._instances, self._rules_of_instances(), *self._sums_of_instances())
        if counts["structure"]:
            broken = [one for one in self._broken if one.constraint == "structure"]
            report = Report(tuple(broken), {"structure": counts["structure"]}, self._accepted)
            return {"report": report.to_dict(), "summary": report.summary()}
        if facts["cut"]:
            cut = self._instances.where(_has_parts()).dropDuplicates(["pair"])
            self._look(cut, [self._sums_up(side) for side in SIDES])
        self._complete()
        if facts["cut"]:
            self._joined_once()
        loads = self._loads(facts["cut"] > 0).persist(StorageLevel.DISK_ONLY)
        try:
            used = self._look(loads, self._rules_of_loads(), *self._sums_of_loads())
            self._density(place, loads)
        finally:
            loads.unpersist()
        order = list(CONSTRAINTS)
        broken = sorted(self._broken, key=lambda one: order.index(one.constraint))
        report = Report(tuple(broken), counts, self._accepted)
        return {
            "report": report.to_dict(),
            "summary": report.summary(),
            **self._summed(facts, used),
        }

    def _rules_of_instances(self) -> list[_Rule]:
        p, one, none = self._query.parameters, F.lit(1.0), F.lit(0.0)
        left, right = (
            (F.col(f"{side}_begin") >= 0)
            & (F.col(f"{side}_begin") < F.col(f"{side}_end"))
            & (F.col(f"{side}_end") <= F.col(size))
            for side, size in zip(SIDES, "mn", strict=True)
        )
        text = F.format_string("%s on %s: an unknown name, or no range of its partitions",
                               "operator", "node")  # fmt: skip
        known = F.col("pair").isNotNull() & F.col("row").isNotNull()
        bad = ~F.coalesce(known & left & right, F.lit(False))
        rules = [_Rule("structure", bad, "operator", one, none, text)]
        text = F.format_string("%s: runs on %s, which lacks what it requires", "operator", "node")
        rules += [_Rule("requirement", ~F.col("met"), "operator", one, none, text)]
        if p.bandwidth is not None:
            need = F.col("left_input") + F.col("right_input")
            text = F.format_string(f"%s: receives %.6g tuples/s, t_b allows {p.bandwidth:g}",
                                   "operator", need)  # fmt: skip
            limit = F.lit(p.bandwidth)
            much = need > p.bandwidth * (1 + TOLERANCE)
            rules += [_Rule("replica-bandwidth", much, "operator", need, limit, text)]
        return rules

    def _sums_up(self, side: str) -> _Rule:
        """The partitions of a cut input sum to the whole."""
        parts, rate = F.col(f"{side}_parts"), F.col(f"{side}_rate")
        sums = F.aggregate(parts, F.lit(0.0), lambda total, x: total + x)
        right = (F.array_min(parts) > 0) & (F.abs(sums - rate) <= TOLERANCE * rate)
        text = F.format_string(f"%s {side}: partitions sum to %.9g tuples/s, its source sends "
                               "%.9g", "operator", sums, rate)  # fmt: skip
        wrong = parts.isNotNull() & ~F.coalesce(right, F.lit(False))
        return _Rule("partitions", wrong, "operator", sums, rate, text)

    def _complete(self) -> None:
        """All pairs of partitions of each join are joined."""
        frame = self._instances
        cells = F.first(F.col("m") * F.col("n"))
        areas = frame.groupBy("pair").agg(F.sum(_area()).alias("area"), cells.alias("cells"))
        whole = areas.agg(F.count_if(F.col("area") == F.col("cells")).alias("n")).first()
        assert whole is not None
        if whole["n"] < self._problem.count("matrix"):
            self._name_incomplete(areas)

    def _name_incomplete(self, areas: DataFrame) -> None:
        """Report the incomplete pairs; those without an instance have no area."""
        every = self._pairs.select("pair", "operator").join(areas, "pair", "left")
        area, cells = F.coalesce("area", F.lit(0)), F.coalesce("cells", F.lit(1))
        text = F.format_string("%s: its instances join %d pairs of partitions, it has %d",
                               "operator", area, cells)  # fmt: skip
        amount, limit = area.cast("double"), cells.cast("double")
        self._look(every, [_Rule("complete", area != cells, "operator", amount, limit, text)])

    def _joined_once(self) -> None:
        """No pair of partitions of a cut join is joined twice."""
        several = self._instances.where(_is_cut()).select("pair", "operator", "node", *BOUNDS)
        order = F.row_number().over(_by_pair())
        first = several.withColumn("number", order)
        other = first.select("pair", *(F.col(c).alias(f"o_{c}") for c in (*BOUNDS, "number")))
        meet = F.col("number") < F.col("o_number")
        for side in SIDES:
            begin, end = (f"{side}_{one}" for one in ("begin", "end"))
            meet = meet & (F.col(begin) < F.col(f"o_{end}")) & (F.col(f"o_{begin}") < F.col(end))
        text = F.format_string("%s: pairs of partitions are joined again on %s", "operator", "node")
        twice = _Rule("complete", meet, "operator", F.lit(1.0), F.lit(0.0), text)
        self._look(first.join(other, "pair"), [twice])

    def _loads(self, any_cut: bool) -> DataFrame:
        """What each node receives: for each pair a partition once."""
        frame = self._instances
        same = ["pair", "node", "capacity", "worker", "leg0", "leg1", "x0"]
        same += ["x1"] if self._dimensions > 1 else []
        inputs = [F.col(f"{side}_input").alias(f"{side}_added") for side in SIDES]
        nothing = [F.lit(0.0).alias(f"{side}_added") for side in SIDES]
        need = (F.col("left_input") + F.col("right_input")).alias("need")
        whole = frame.where(~_is_cut()).select(*same, *inputs, need)
        if self._counts["complete"]:
            # Without violations each of them occurs once.
            whole = whole.dropDuplicates(["pair", "node"])
        received = whole
        if any_cut:
            received = whole.union(frame.where(_is_cut()).select(*same, *nothing, need))
        for side in SIDES if any_cut else ():
            numbers = F.sequence(F.col(f"{side}_begin") + 1, F.col(f"{side}_end"))
            rates = F.coalesce(F.col(f"{side}_parts"), F.array(f"{side}_rate"))
            each = frame.where(_is_cut()).select(
                *same, F.explode(numbers).alias("n"), rates.alias("r")
            )
            distinct = each.dropDuplicates(["pair", "node", "n"])
            rate = F.element_at("r", F.col("n").cast("int"))
            added = {one: rate if one == side else F.lit(0.0) for one in SIDES}
            columns = [added[one].alias(f"{one}_added") for one in SIDES]
            received = received.union(distinct.select(*same, *columns, F.lit(0.0)))
        left, right = (F.col(f"{side}_added") for side in SIDES)
        return received.groupBy("node").agg(
            F.sum(left + right).alias("load"),
            F.sum(left * F.col("leg0") + right * F.col("leg1")).alias("inputs_usage"),
            F.max("need").alias("greatest"),
            *(F.first(name).alias(name) for name in same if name in ("capacity", "worker")),
            *(F.first(name).alias(name) for name in same if name in ("x0", "x1")),
        )

    def _rules_of_loads(self) -> list[_Rule]:
        c_min = self._query.parameters.c_min
        load, capacity = F.col("load"), F.col("capacity")
        text = F.format_string("node %s receives %.6g tuples/s, %.6g over its capacity of %.6g",
                               "node", load, load - capacity, capacity)  # fmt: skip
        over = load > capacity * (1 + TOLERANCE)
        rules = [_Rule("capacity", over, "node", load, capacity, text)]
        text = F.format_string("node %s may not host operators but does", "node")
        rules += [_Rule("worker", ~F.col("worker"), "node", F.lit(1.0), F.lit(0.0), text)]
        if c_min > 0:
            # As in the core: what was available when the node was last chosen.
            available = capacity - load + F.col("greatest")
            text = F.format_string("node %s had %.6g tuples/s available at most when last chosen, "
                                   f"C_min is {c_min:g}", "node", available)  # fmt: skip
            small = available < c_min - TOLERANCE * capacity
            rules += [_Rule("minimum-capacity", small, "node", available, F.lit(c_min), text)]
        return rules

    def _sums_of_instances(self) -> list[Column]:
        # A plan whose structure is broken may have no partitions.
        share = F.try_divide(_area(), F.col("m") * F.col("n"))
        path = F.greatest("leg0", "leg1") + F.col("leg2")
        sinks = 2.0 if self._query.parameters.objective == "source-latency" else 1.0
        cost = F.col("leg0") + F.col("leg1") + sinks * F.col("leg2")
        emitted = (F.col("left_input") / F.col("left_rate")) * (
            F.col("right_input") / F.col("right_rate")
        )
        return [
            F.sum(cost * share).alias("objective"),
            F.count("*").alias("instances"),
            F.count_if(_is_cut() | _has_parts()).alias("cut"),
            F.sum(_area()).alias("replicas"),
            F.sum(F.col("output_rate") * emitted * F.col("leg2")).alias("usage"),
            F.avg(path).alias("mean"),
            F.percentile_approx(path, list(QUANTILES), 10_000).alias("path"),
        ]

    def _sums_of_loads(self) -> list[Column]:
        used = F.when(F.col("capacity") < float("inf"), F.col("load") / F.col("capacity"))
        return [
            F.count("*").alias("nodes"),
            F.sum("load").alias("load"),
            F.sum("inputs_usage").alias("usage"),
            F.percentile_approx(F.coalesce(used, F.lit(0.0)), list(QUANTILES), 10_000).alias(
                "used"
            ),
        ]

    def _summed(self, i: Row, n: Row) -> dict[str, Any]:
        """Costs of the plan, from the sums of instances and of loads."""
        usage = i["usage"] + n["usage"]
        objective = usage if self._query.parameters.objective == "network-usage" else i["objective"]
        names = [f"p{100 * q:g}" for q in QUANTILES[:-1]] + ["greatest"]
        return {
            "totals": {
                "objective": objective,
                "instances": i["instances"],
                "replicas": i["replicas"],
                "nodes_used": n["nodes"],
                "received": n["load"],
                "network_usage": usage,
            },
            "latency": {"mean": i["mean"], **dict(zip(names, i["path"], strict=True))},
            "load": dict(zip(names, n["used"], strict=True)),
        }

    def _density(self, place: Path, loads: DataFrame) -> None:
        """Counts in squares of the plane, for the picture."""
        flat = min(self._dimensions, 2)
        ends = self._nodes.agg(
            *(F.min(F.element_at("position", k + 1)) for k in range(flat)),
            *(F.max(F.element_at("position", k + 1)) for k in range(flat)),
        ).first()
        assert ends is not None
        low, high = np.array(ends[:flat]), np.array(ends[flat:])
        step = np.where(high > low, (high - low) / GRID, 1.0)

        def grids(frame: DataFrame, at: list[Column], **what: Column) -> dict[str, Any]:
            # Virtual positions may be outside by a rounding.
            index = [
                F.floor((x - float(low[k])) / float(step[k])).alias(f"g{k}")
                for k, x in enumerate(at)
            ]
            values = [column.alias(name) for name, column in what.items()]
            rows = frame.select(*index, *values).groupBy(*(f"g{k}" for k in range(flat)))
            table = rows.agg(*(F.sum(name).alias(name) for name in what)).toArrow()
            columns = [
                np.clip(np.asarray(table.column(f"g{k}"), np.int64), 0, GRID - 1)
                for k in range(flat)
            ]
            where = columns[0], columns[1] if flat > 1 else np.zeros_like(columns[0])
            result = {name: np.zeros((GRID, GRID)) for name in what}
            for name, grid in result.items():
                np.add.at(grid, where, table.column(name).to_numpy())
            return result

        def axes(name: str) -> list[Column]:
            return [F.element_at(name, k + 1) for k in range(flat)]

        one = F.lit(1.0)
        room = F.when(F.col("worker") & (F.col("capacity") < float("inf")), F.col("capacity"))
        room = F.coalesce(room, F.lit(0.0))
        np.savez_compressed(
            place / "density.npz",
            low=low,
            high=high,
            **grids(self._nodes, axes("position"), nodes=one, capacity=room),
            **grids(self._pairs, axes("point"), joins=one),
            **grids(loads, [F.col(f"x{k}") for k in range(flat)], load=F.col("load")),
        )


def _area() -> Column:
    """Pairs of partitions that an instance joins."""
    left, right = (F.col(f"{side}_end") - F.col(f"{side}_begin") for side in SIDES)
    return left * right


def _is_cut() -> Column:
    return (F.col("m") > 1) | (F.col("n") > 1)


def _has_parts() -> Column:
    """Whether the plan has partitions of an input."""
    return F.coalesce(*(F.col(f"{side}_parts") for side in SIDES)).isNotNull()


def _rows(spark: SparkSession, table: Path) -> DataFrame:
    return read_files(spark, parquet_files(table, PlanError), PlanError)


def _partitions(spark: SparkSession, table: Path | None) -> DataFrame:
    """The rates of the partitions of each cut operator; null for a whole input."""
    if table is None:
        empty = "operator string, left_parts array<double>, right_parts array<double>"
        return small_table(spark, [], empty)
    rows = _rows(spark, table)
    sides = [F.first(F.when(F.col("side") == s, F.col("rates")), True) for s in SIDES]
    named = [side.alias(f"{s}_parts") for s, side in zip(SIDES, sides, strict=True)]
    return rows.groupBy("operator").agg(*named)


def _input(side: str) -> Column:
    """What an instance receives of one input, tuples/s."""
    begin, end, parts = F.col(f"{side}_begin"), F.col(f"{side}_end"), F.col(f"{side}_parts")
    some = F.slice(parts, (begin + 1).cast("int"), (end - begin).cast("int"))
    summed = F.aggregate(some, F.lit(0.0), lambda total, x: total + x)
    whole = parts.isNull() | ((begin == 0) & (end == F.size(parts)))
    return F.when(whole, F.col(f"{side}_rate")).otherwise(summed)


def _by_pair() -> Any:
    from pyspark.sql import Window

    return Window.partitionBy("pair").orderBy(*BOUNDS, "node")
