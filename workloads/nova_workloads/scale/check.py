"""Every constraint of a plan in tables, worked out by Spark from its instances alone.

The constraints, their names and the report are those of `nova_core.model.verify`; so are the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from nova_core.model.verify import ACCEPTABLE, CONSTRAINTS, TOLERANCE, Report, Violation
from nova_workloads.scale.cells import meets
from nova_workloads.scale.part import Query
from nova_workloads.scale.tables import Problem

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SPELLED_OUT = 20
# Cells of the picture along each side.
GRID = 256
QUANTILES = (0.5, 0.9, 0.99, 1.0)
SIDES = ("left", "right")
RATES = ("left_rate", "right_rate", "output_rate")
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


class _Check:
    """One check; frames are worked out once and kept on disk."""

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
        instances = spark.read.parquet(str(tables["instances"]))
        self._instances = self._located(instances).persist(StorageLevel.DISK_ONLY)

    def _located(self, instances: DataFrame) -> DataFrame:
        """Instances with their pair, their node and what both make of them."""
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

    def _run(self, place: Path) -> dict[str, Any]:
        frame, counts = self._instances, dict.fromkeys(CONSTRAINTS, 0)
        broken: list[Violation] = []

        def count(name: str, rows: DataFrame, key: str, amount: Column, limit: Column,
                  text: Column) -> None:  # fmt: skip
            counts[name] += rows.count()
            if counts[name]:
                shown = rows.select(key, amount.alias("a"), limit.alias("l"), text.alias("t"))
                worst = shown.orderBy(F.desc(F.abs(F.col("a") - F.col("l"))), key)
                broken.extend(
                    Violation(name, row[key], row["a"], row["l"], row["t"], name in self._accepted)
                    for row in worst.limit(SPELLED_OUT).collect()
                )

        one, none = F.lit(1.0), F.lit(0.0)
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
        count("structure", frame.where(bad), "operator", one, none, text)
        if counts["structure"]:
            report = Report(tuple(broken), {"structure": counts["structure"]}, self._accepted)
            return {"report": report.to_dict(), "summary": report.summary()}
        for side in SIDES:
            sums = F.aggregate(f"{side}_parts", F.lit(0.0), lambda total, x: total + x)
            least = F.array_min(f"{side}_parts")
            rate = F.col(f"{side}_rate")
            close = F.abs(sums - rate) <= TOLERANCE * rate
            right_sum = F.coalesce((least > 0) & close, F.lit(False))
            cut = frame.where(F.col(f"{side}_parts").isNotNull()).dropDuplicates(["pair"])
            text = F.format_string(f"%s {side}: partitions sum to %.9g tuples/s, its source sends "
                                   "%.9g", "operator", sums, rate)  # fmt: skip
            count("partitions", cut.where(~right_sum), "operator", sums, rate, text)
        self._complete(count)
        received = self._received().persist(StorageLevel.DISK_ONLY)
        loads = received.groupBy("node").agg(
            F.sum(F.col("left_added") + F.col("right_added")).alias("load"),
            F.first("capacity").alias("capacity"),
            F.first("worker").alias("worker"),
                F.max("need").alias("greatest"),
        ).persist(StorageLevel.DISK_ONLY)  # fmt: skip
        try:
            self._resources(count, loads)
            report = Report(tuple(broken), counts, self._accepted)
            facts = self._sums(received, loads)
            self._density(place, received)
        finally:
            received.unpersist()
            loads.unpersist()
        return {"report": report.to_dict(), "summary": report.summary(), **facts}

    def _complete(self, count: Any) -> None:
        """Areas and overlaps: every pair of partitions is joined exactly once."""
        frame = self._instances
        area = (F.col("left_end") - F.col("left_begin")) * (
            F.col("right_end") - F.col("right_begin")
        )
        cells = F.first(F.col("m") * F.col("n"))
        found = frame.groupBy("pair").agg(F.sum(area).alias("area"), cells.alias("cells"))
        every = self._pairs.select("pair", "operator").join(found, "pair", "left")
        area = F.coalesce("area", F.lit(0))
        wrong = every.where(area != F.coalesce("cells", F.lit(1)))
        text = F.format_string("%s: its instances join %d pairs of partitions, it has %d",
                               "operator", area, F.coalesce("cells", F.lit(1)))  # fmt: skip
        expected = F.coalesce("cells", F.lit(1)).cast("double")
        count("complete", wrong, "operator", area.cast("double"), expected, text)
        several = frame.where((F.col("m") > 1) | (F.col("n") > 1)).select(
            "pair", "operator", "node", *BOUNDS
        )
        order = F.row_number().over(_by_pair())
        first = several.withColumn("number", order)
        other = first.select("pair", *(F.col(c).alias(f"o_{c}") for c in (*BOUNDS, "number")))
        meet = F.col("number") < F.col("o_number")
        for side in SIDES:
            begin, end = (f"{side}_{one}" for one in ("begin", "end"))
            meet = meet & (F.col(begin) < F.col(f"o_{end}")) & (F.col(f"o_{begin}") < F.col(end))
        twice = first.join(other, "pair").where(meet)
        text = F.format_string("%s: pairs of partitions are joined again on %s", "operator", "node")
        count("complete", twice, "operator", F.lit(1.0), F.lit(0.0), text)

    def _received(self) -> DataFrame:
        """What is sent to each node for each pair, a partition once; and what instances need."""
        frame = self._instances
        same = ["pair", "node", "capacity", "worker", "leg0", "leg1", "x0"]
        same += ["x1"] if self._dimensions > 1 else []
        is_cut = (F.col("m") > 1) | (F.col("n") > 1)
        inputs = [F.col(f"{side}_input").alias(f"{side}_added") for side in SIDES]
        nothing = [F.lit(0.0).alias(f"{side}_added") for side in SIDES]
        need = (F.col("left_input") + F.col("right_input")).alias("need")
        whole = frame.where(~is_cut).select(*same, *inputs, need)
        received = whole.dropDuplicates(["pair", "node"]).union(
            frame.where(is_cut).select(*same, *nothing, need)
        )
        for side in SIDES:
            numbers = F.sequence(F.col(f"{side}_begin") + 1, F.col(f"{side}_end"))
            rates = F.coalesce(F.col(f"{side}_parts"), F.array(f"{side}_rate"))
            each = frame.where(is_cut).select(
                *same, F.explode(numbers).alias("n"), rates.alias("r")
            )
            distinct = each.dropDuplicates(["pair", "node", "n"])
            rate = F.element_at("r", F.col("n").cast("int"))
            added = {one: rate if one == side else F.lit(0.0) for one in SIDES}
            columns = [added[one].alias(f"{one}_added") for one in SIDES]
            received = received.union(distinct.select(*same, *columns, F.lit(0.0)))
        return received

    def _resources(self, count: Any, loads: DataFrame) -> None:
        frame, p = self._instances, self._query.parameters
        load, capacity = F.col("load"), F.col("capacity")
        text = F.format_string("node %s receives %.6g tuples/s, %.6g over its capacity of %.6g",
                               "node", load, load - capacity, capacity)  # fmt: skip
        over = loads.where(load > capacity * (1 + TOLERANCE))
        count("capacity", over, "node", load, capacity, text)
        text = F.format_string("node %s may not host operators but does", "node")
        count("worker", loads.where(~F.col("worker")), "node", F.lit(1.0), F.lit(0.0), text)
        text = F.format_string("%s: runs on %s, which lacks what it requires", "operator", "node")
        lacking = frame.where(~F.col("met"))
        count("requirement", lacking, "operator", F.lit(1.0), F.lit(0.0), text)
        # As in the core: so much was available when the node was chosen at the latest.
        available = capacity - load + F.col("greatest")
        text = F.format_string("node %s had %.6g tuples/s available at most when last chosen, "
                               f"C_min is {p.c_min:g}", "node", available)  # fmt: skip
        small = loads.where((available < p.c_min - TOLERANCE * capacity) & F.lit(p.c_min > 0))
        count("minimum-capacity", small, "node", available, F.lit(p.c_min), text)
        if p.bandwidth is not None:
            need = F.col("left_input") + F.col("right_input")
            text = F.format_string(f"%s: receives %.6g tuples/s, t_b allows {p.bandwidth:g}",
                                   "operator", need)  # fmt: skip
            much = frame.where(need > p.bandwidth * (1 + TOLERANCE))
            count("replica-bandwidth", much, "operator", need, F.lit(p.bandwidth), text)

    def _sums(self, received: DataFrame, loads: DataFrame) -> dict[str, Any]:
        """What the plan costs."""
        area = (F.col("left_end") - F.col("left_begin")) * (
            F.col("right_end") - F.col("right_begin")
        )
        share = area / (F.col("m") * F.col("n"))
        path = F.greatest("leg0", "leg1") + F.col("leg2")
        sinks = 2.0 if self._query.parameters.objective == "source-latency" else 1.0
        cost = F.col("leg0") + F.col("leg1") + sinks * F.col("leg2")
        emitted = (F.col("left_input") / F.col("left_rate")) * (
            F.col("right_input") / F.col("right_rate")
        )
        i = self._instances.agg(
            F.sum(cost * share).alias("objective"),
            F.count("*").alias("instances"),
            F.sum(area).alias("replicas"),
            F.sum(F.col("output_rate") * emitted * F.col("leg2")).alias("usage"),
            F.avg(path).alias("mean"),
            F.percentile_approx(path, list(QUANTILES), 10_000).alias("path"),
        ).first()
        r = received.agg(
            F.sum(F.col("left_added") * F.col("leg0") + F.col("right_added") * F.col("leg1"))
        ).first()
        used = F.when(F.col("capacity") < float("inf"), F.col("load") / F.col("capacity"))
        n = loads.agg(
            F.count("*").alias("nodes"),
            F.sum("load").alias("load"),
            F.percentile_approx(F.coalesce(used, F.lit(0.0)), list(QUANTILES), 10_000).alias(
                "used"
            ),
        ).first()
        assert i is not None and r is not None and n is not None
        usage = i["usage"] + r[0]
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

    def _density(self, place: Path, received: DataFrame) -> None:
        """Counts in squares of the plane, for the picture."""
        flat = min(self._dimensions, 2)
        ends = self._nodes.agg(
            *(F.min(F.element_at("position", k + 1)) for k in range(flat)),
            *(F.max(F.element_at("position", k + 1)) for k in range(flat)),
        ).first()
        assert ends is not None
        low, high = np.array(ends[:flat]), np.array(ends[flat:])
        step = np.where(high > low, (high - low) / GRID, 1.0)

        def grid(frame: DataFrame, at: list[Column], what: Column) -> Any:
            # Virtual positions may be outside by a rounding.
            index = [
                F.floor((x - float(low[k])) / float(step[k])).alias(f"g{k}")
                for k, x in enumerate(at)
            ]
            found = np.zeros((GRID, GRID))
            rows = frame.select(*index, what.alias("w")).groupBy(*(f"g{k}" for k in range(flat)))
            table = rows.agg(F.sum("w").alias("w")).toArrow()
            columns = [
                np.clip(np.asarray(table.column(f"g{k}"), np.int64), 0, GRID - 1)
                for k in range(flat)
            ]
            where = columns[0], columns[1] if flat > 1 else np.zeros_like(columns[0])
            np.add.at(found, where, table.column("w").to_numpy())
            return found

        def axes(name: str) -> list[Column]:
            return [F.element_at(name, k + 1) for k in range(flat)]

        one = F.lit(1.0)
        load = F.col("left_added") + F.col("right_added")
        room = F.when(F.col("worker") & (F.col("capacity") < float("inf")), F.col("capacity"))
        np.savez_compressed(
            place / "density.npz",
            low=low,
            high=high,
            nodes=grid(self._nodes, axes("position"), one),
            joins=grid(self._pairs, axes("point"), one),
            load=grid(received, [F.col(f"x{k}") for k in range(flat)], load),
            capacity=grid(self._nodes, axes("position"), F.coalesce(room, F.lit(0.0))),
        )


def _partitions(spark: SparkSession, table: Path | None) -> DataFrame:
    """The rates of the partitions of each operator that is cut; null for a whole input."""
    if table is None:
        empty = "operator string, left_parts array<double>, right_parts array<double>"
        return spark.createDataFrame([], empty)
    rows = spark.read.parquet(str(table))
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
