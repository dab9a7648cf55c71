"""Pairs with the positions of their ends: names become rows, joins get virtual positions.

Stages ``nodes``, ``sinks``, ``sources`` and ``pairs``; the last two are tables, in the order of the
problem's rows. The checks that `nova_core` makes when it reads a problem are made here, unless they
need another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from nova_core.errors import ProblemError
from nova_core.io.validation import SINK_SLACK
from nova_core.model.problem import GREATEST_LATENCY, Ints, Joins
from nova_workloads.scale.part import (
    RATES,
    fermat_points,
    floats,
    ints,
    lists_of_rows,
    rows_of_lists,
)
from nova_workloads.scale.tables import (
    Problem,
    bad_name,
    count_rows,
    of_batches,
    small_table,
    write_in_order,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

# Accepted values of columns, for errors.
ACCEPTED = {
    "id": "a name; a name is not empty and has no control characters",
    "stream": "a name; a name is not empty and has no control characters",
    "position": f"numbers of ms from {-GREATEST_LATENCY:g} to {GREATEST_LATENCY:g}",
    "capacity": "a number of tuples/s >= 0, or unlimited",
    "height": f"a number of ms from 0 to {GREATEST_LATENCY:g}",
    "penalty": "a number of ms >= 0",
    "rate": "a positive number of tuples/s",
}


def check_nodes(spark: SparkSession, problem: Problem) -> dict[str, Any]:
    """Check the nodes, and sum up those that may host.

    Returns:
        nodes that may host, their capacity and that of the largest, tuples/s.
    """
    nodes = problem.nodes(spark)
    # Not F.forall: Spark compiles no functions of elements.
    axes = [F.element_at("position", k + 1) for k in range(len(problem.axes))]
    within = [F.coalesce(F.abs(x) <= GREATEST_LATENCY, F.lit(False)) for x in axes]
    rules: dict[str, Column] = {
        "id": bad_name("id"),
        "position": ~reduce(and_, within),
        "capacity": ~F.coalesce((F.col("capacity") >= 0) & ~F.isnan("capacity"), F.lit(False)),
    }
    for name, most in (("height", GREATEST_LATENCY), ("penalty", 1e300)):
        if name in problem.extras:
            rules[name] = ~F.col(name).between(0, most) | F.isnan(name)
    host = F.col("worker") & (F.col("capacity") > 0)
    facts = _refuse_bad(
        problem,
        "nodes",
        nodes,
        rules,
        F.count(F.when(host, 1)).alias("hosts"),
        F.coalesce(F.sum(F.when(host, F.col("capacity"))), F.lit(0.0)).alias("capacity"),
        F.coalesce(F.max(F.when(host, F.col("capacity"))), F.lit(0.0)).alias("largest_host"),
    )
    _refuse_twice(problem, "nodes", problem.files_of(spark, "nodes"), "id")
    if not facts["hosts"]:
        raise ProblemError(f"{problem.path}: nodes: no worker with a capacity above 0")
    sums = {name: facts[name] for name in ("hosts", "capacity", "largest_host")}
    return {"nodes": problem.count("nodes"), **sums}


def find_sinks(spark: SparkSession, problem: Problem) -> dict[str, Any]:
    """Stage ``sinks``: the row of each sink by its name, and its facts by its row.

    Facts are position, height and capacity. A sink that is no node is left out.
    """
    sinks = dict.fromkeys(row.sink for row in problem.operators)
    names = small_table(spark, [(name,) for name in sinks], "id string")
    height = F.col("height") if "height" in problem.extras else F.lit(0.0)
    rows = (
        problem.nodes(spark)
        .join(F.broadcast(names), "id")
        .select("id", "row", F.concat("position", F.array(height, "capacity")).alias("facts"))
        .collect()
    )
    return {
        "rows": {one["id"]: one["row"] for one in rows},
        "facts": {str(one["row"]): one["facts"] for one in rows},
    }


def write_sources(spark: SparkSession, problem: Problem, place: Path) -> dict[str, Any]:
    """Stage ``sources``: each source with the row, the position and the height of its node."""
    sources, nodes = problem.sources(spark), problem.nodes(spark)
    rate = F.col("rate")
    right = F.coalesce((rate > 0) & (rate < float("inf")), F.lit(False))
    rules = {"id": bad_name("id"), "stream": bad_name("stream"), "rate": ~right}
    _refuse_bad(problem, "sources", sources, rules)
    _refuse_twice(problem, "sources", problem.files_of(spark, "sources"), "id")
    high = ["height"] if "height" in problem.extras else []
    homes = nodes.select(F.col("id").alias("node"), F.col("row").alias("home"), "position", *high)
    located = sources.join(homes.hint("shuffle_hash"), "node").drop("node")
    count = problem.count("sources")
    write_in_order(located, "row", count, place)
    written = count_rows(place)
    if written < count:
        lost = sources.join(nodes, sources.node == nodes.id, "left_anti").orderBy("row").first()
        assert lost is not None
        _refuse(problem, "sources", lost["row"], "node", f"{lost['node']!r} is no node")
    return {"sources": written}


def write_pairs(
    spark: SparkSession,
    problem: Problem,
    joins: Joins,
    sinks: Mapping[str, list[float]],
    sources: Path,
    place: Path,
    objective: str,
) -> dict[str, Any]:
    """Stage ``pairs``: the joins of parts (`nova_workloads.scale.part`), with rows of sources.

    Args:
        spark: a session.
        problem: what is placed.
        joins: its joins of logical streams.
        sinks: facts of each sink (`find_sinks`).
        sources: the stage of sources.
        place: where it goes.
        objective: what is minimized.
    """
    columns = zip(joins.ids, joins.left, joins.right, joins.sink, problem.operators, strict=True)
    rows = [
        (
            str(name),
            row,
            str(left),
            str(right),
            int(sink),
            *_place(sinks[str(sink)]),
            one.selectivity,
        )
        for row, (name, left, right, sink, one) in enumerate(columns)
    ]
    operators = small_table(
        spark,
        rows,
        "name string, op int, left_stream string, right_stream string, sink long, "
        "sink_position array<double>, sink_height double, selectivity double",
    )
    known = spark.read.parquet(str(sources))
    left, right = (
        known.select(*(F.col(one).alias(f"{side}_{one}") for one in known.columns)).hint(
            "shuffle_hash"
        )
        for side in "lr"
    )
    rate = F.coalesce(
        F.col("output_rate"), F.col("selectivity") * F.least(F.col("l_rate"), F.col("r_rate"))
    )
    high = "height" in problem.extras
    heights = [F.array("l_height", "r_height", "sink_height").alias("heights")] if high else []
    joined = (
        problem.pairs(spark)
        .withColumnRenamed("row", "pair")
        .join(F.broadcast(operators), F.col("join") == F.col("name"))
        .join(left, (F.col("left") == left.l_id) & (F.col("left_stream") == left.l_stream))
        .join(right, (F.col("right") == right.r_id) & (F.col("right_stream") == right.r_stream))
        .where(F.col("l_row") != F.col("r_row"))
        .select(
            "pair",
            operator_name().alias("operator"),
            F.col("op").alias("join"),
            F.array("l_home", "r_home", "sink").alias("ends"),
            F.concat("l_position", "r_position", "sink_position").alias("anchors"),
            F.col("l_rate").alias("left_rate"),
            F.col("r_rate").alias("right_rate"),
            rate.alias("output_rate"),
            F.array("l_row", "r_row").alias("sources"),
            *heights,
        )
    )
    points = of_batches(_points(objective), "array<double>")
    located = joined.withColumn("point", points("anchors", *RATES))
    count = problem.count("matrix")
    write_in_order(located, "pair", count, place)
    written = count_rows(place)
    pairs = spark.read.parquet(str(place))
    if written < count:
        lost = problem.pairs(spark).join(pairs, F.col("row") == F.col("pair"), "left_anti")
        first = lost.orderBy("row").first()
        assert first is not None
        _refuse_pair(problem, first.asDict(), known)
    return _pair_facts(problem, pairs, joins, sinks)


def operator_name() -> Column:
    """The name of a pair, from columns ``join``, ``left`` and ``right`` (`Problem.pair_name`)."""

    def escaped(column: str, separator: str) -> Column:
        text = F.replace(F.col(column), F.lit("%"), F.lit("%25"))
        return F.replace(text, F.lit(separator), F.lit(f"%{ord(separator):02X}"))

    left = escaped("left", "*")
    return F.concat(escaped("join", "/"), F.lit("/"), left, F.lit("*"), F.col("right"))


def _place(facts: list[float]) -> tuple[list[float], float]:
    """Position and height of a sink."""
    return list(facts[:-2]), float(facts[-2])


def _points(objective: str) -> Callable[[Any], Any]:
    """A function of batches of pairs: their virtual positions."""

    def points(batch: Any) -> Any:
        anchors = rows_of_lists(batch, "anchors").reshape(len(batch), 3, -1)
        rates = np.stack([floats(batch, name) for name in RATES], axis=1)
        return lists_of_rows(fermat_points(anchors, rates, objective))

    return points


def _pair_facts(
    problem: Problem, pairs: DataFrame, joins: Joins, sinks: Mapping[str, list[float]]
) -> dict[str, Any]:
    """Sums over the pairs; a sink that cannot take its output is refused."""
    _refuse_twice(problem, "matrix", pairs, "operator")
    rate, need = F.col("output_rate"), F.col("left_rate") + F.col("right_rate")
    bad = ~((rate > 0) & (rate < float("inf")))
    rows = (
        pairs.groupBy("join")
        .agg(
            F.count("*").alias("pairs"),
            F.sum(rate).alias("output"),
            F.sum(need).alias("required"),
            F.max(need).alias("largest"),
            F.min(F.when(bad, F.col("pair"))).alias("bad"),
        )
        .collect()
    )
    wrong = [row["bad"] for row in rows if row["bad"] is not None]
    if wrong:
        one = pairs.where(F.col("pair") == min(wrong)).first()
        assert one is not None
        what = f"{one['output_rate']} of {one['operator']} is not a positive number of tuples/s"
        _refuse(problem, "matrix", one["pair"], "output_rate", what)
    arriving: dict[int, float] = {}
    for row in rows:
        sink = int(joins.sink[row["join"]])
        arriving[sink] = arriving.get(sink, 0.0) + row["output"]
    for sink, output in sorted(arriving.items()):
        capacity = sinks[str(sink)][-1]
        if not output <= capacity * (1 + SINK_SLACK):
            what = f"the sink cannot take the output: {output:g} tuples/s arrive"
            _refuse(problem, "nodes", sink, "capacity", f"{what}, {capacity:g} fit")
    return {
        "pairs": sum(row["pairs"] for row in rows),
        "required": sum(row["required"] for row in rows),
        "largest": max(row["largest"] for row in rows),
        "of_join": {str(row["join"]): row["required"] for row in rows},
        "pairs_of_join": {str(row["join"]): row["pairs"] for row in rows},
    }


# --- errors ---------------------------------------------------------------------------------------


def _refuse(problem: Problem, table: str, row: int, column: str, what: str) -> NoReturn:
    place = problem.path.parent / getattr(problem.header.tables, table)
    raise ProblemError(f"{place}: {table}[{row}].{column}: {what}")


def _refuse_bad(
    problem: Problem, table: str, frame: DataFrame, rules: dict[str, Column], *sums: Column
) -> Row:
    """Raise for the first row that breaks a rule; else return sums, in one pass over the table."""
    firsts = [
        F.min(F.when(broken, F.col("row"))).alias(f"bad_{name}") for name, broken in rules.items()
    ]
    facts = frame.agg(*firsts, *sums).first()
    assert facts is not None
    for name in rules:
        bad = facts[f"bad_{name}"]
        if bad is not None:
            row = frame.where(F.col("row") == bad).first()
            assert row is not None
            accepted = ACCEPTED[name]
            _refuse(problem, table, bad, name, f"{row[name]!r} is not {accepted}")
    return facts


def _refuse_twice(problem: Problem, table: str, frame: DataFrame, column: str) -> None:
    """Raise for a text that two rows have."""
    # Hashes are quicker to compare than texts; texts decide whether equal hashes are duplicates.
    # Sorting them is quicker than counting each in a hash table.
    hashed = frame.select(F.xxhash64(column).alias("hash")).repartition("hash")
    hashes = [row["hash"] for row in hashed.mapInArrow(_equal, "hash long").collect()]
    if not hashes:
        return
    again = frame.where(F.xxhash64(column).isin(hashes)).groupBy(column).count()
    first = again.where("count > 1").orderBy(column).first()
    if first is not None:
        place = problem.path.parent / getattr(problem.header.tables, table)
        name = f"{table}.{column}: {first[column]!r}"
        raise ProblemError(f"{place}: {name} is there {first['count']} times; names are unique")


def _equal(batches: Iterator[Any]) -> Iterator[Any]:
    """Numbers that occur more than once; some of them, if there are many."""
    import pyarrow as pa

    again, chunks = np.empty(0, np.int64), [np.empty(0, np.int64)]
    for batch in batches:
        # Once a number repeats, no more are kept: columns with few different texts stay cheap.
        if not len(again):
            chunks.append(ints(batch, "hash"))
            again = _repeated(chunks[-1])
    if not len(again):
        again = _repeated(np.concatenate(chunks))
    yield pa.RecordBatch.from_arrays([pa.array(again[:10])], ["hash"])


def _repeated(numbers: Ints) -> Ints:
    ordered = np.sort(numbers)
    return np.unique(ordered[1:][np.diff(ordered) == 0])


def _refuse_pair(problem: Problem, row: dict[str, Any], sources: DataFrame) -> NoReturn:
    """Raise for a pair without ends, with the reason."""
    number = row["row"]
    by_name = {one.id: one for one in problem.operators}
    if row["join"] not in by_name:
        _refuse(problem, "matrix", number, "join", f"{row['join']!r} is no operator of the query")
    streams = {
        one["id"]: one["stream"]
        for one in sources.where(F.col("id").isin(row["left"], row["right"])).collect()
    }
    for side in ("left", "right"):
        name, needed = row[side], getattr(by_name[row["join"]], side)
        if name not in streams:
            _refuse(problem, "matrix", number, side, f"{name!r} is no source")
        if streams[name] != needed:
            what = f"{name!r} belongs to stream {streams[name]!r}, but {row['join']!r} joins"
            _refuse(problem, "matrix", number, side, f"{what} {needed!r} there")
    _refuse(problem, "matrix", number, "right", f"pairs {row['left']!r} with itself")
