"""From a directory of tables to a plan in tables, in stages that a killed run need not repeat.

Sources and pairs get their positions; Nova's plan of a sample gives every join a cell of the cost
space; each cell is placed by itself; the few joins without room go to the next round, the last of
which runs on the driver. Data that grow with the problem never do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import UNSET
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from nova_core.errors import InfeasibleError, NovaError, PlanError, ProblemError
from nova_core.io.assembly import joins_of
from nova_core.io.directories import new_directory
from nova_core.io.plan_document import VERSION, PlanTablesHeader
from nova_core.io.safe_files import write_text
from nova_core.io.syntax import dump, read_typed
from nova_core.model.objectives import OBJECTIVES
from nova_core.model.problem import Joins
from nova_core.model.requirements import ANY_NODE, NOTHING
from nova_core.strategies.base import parameter_dict
from nova_core.strategies.nova import SPREAD_BREAKS
from nova_core.strategies.nova_parameters import NovaParameters
from nova_workloads.scale.anchors import check_nodes, find_sinks, write_pairs, write_sources
from nova_workloads.scale.cells import (
    hosts_of,
    in_sample,
    meets,
    meets_any,
    place_cells,
    place_here,
    read_kind,
    sample,
)
from nova_workloads.scale.check import check
from nova_workloads.scale.coarse import Coarse
from nova_workloads.scale.digest import digest_of
from nova_workloads.scale.part import Query
from nova_workloads.scale.picture import draw
from nova_workloads.scale.stages import Stages, beside
from nova_workloads.scale.tables import (
    Problem,
    facts_of,
    fingerprint,
    link_table,
    parquet_files,
    spread_rows,
    write_in_order,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Format of the stages; runs that were begun with another are refused.
FORMAT = 2
# Nodes per cell, and joins, unless the number of cells is given.
CELL_NODES = CELL_JOINS = 200_000
# Nodes that are sampled for the coarse plan, and the most joins.
SAMPLE = 200_000
SAMPLE_JOINS = 1_000_000
# Joins and nodes that the driver takes.
LAST_JOINS = 200_000
LAST_NODES = 1_000_000
# Up to so many very large nodes are in every sample.
LARGE_NODES = 10_000
ROUNDS = 3
# Joins whose requirement so few nodes meet are placed first, and exactly: a sample may have none.
RARE_NODES = 100_000


@dataclass(frozen=True)
class Scale:
    """How to place at scale.

    Attributes:
        parameters: of Nova; the index is the capacity tree.
        cells: of the cost space, rounded up to a power of two; None for one per `CELL_NODES` or
            `CELL_JOINS`, whichever are more.
        sample: nodes in the coarse plan.
    """

    parameters: NovaParameters = field(default_factory=lambda: NovaParameters(refine=False))
    cells: int | None = None
    sample: int = SAMPLE

    def __post_init__(self) -> None:
        if self.parameters.index != "capacity-tree":
            raise ProblemError(f"nova scale: index {self.parameters.index}: use capacity-tree")


def open_problem(place: Path, output: Path) -> Problem:
    """A problem whose plan goes to a directory that does not exist yet.

    Raises:
        NovaError: for a problem that is not in tables, or a directory that exists.
    """
    if output.exists():
        raise NovaError(f"{output}: already there; remove it, or give another name")
    return Problem.open(place)


def open_plan(plan: Path) -> PlanTablesHeader:
    """The header of a plan in tables.

    Raises:
        PlanError: for a plan not in tables, or with columns that are not checked here.
    """
    header = read_typed(plan / "plan.json", PlanTablesHeader, "nova_plan", VERSION, PlanError)
    instances = written_tables(plan, header)["instances"]
    columns = facts_of(parquet_files(instances, PlanError)[0], PlanError)[1].names
    for name in ("feeds", "left_route"):
        if name in columns:
            raise PlanError(f"{instances}: column {name!r}: use nova check")
    return header


def written_tables(plan: Path, header: PlanTablesHeader) -> dict[str, Path]:
    """The tables of a plan by their names."""
    tables = {"instances": header.tables.instances, "partitions": header.tables.partitions}
    return {name: plan / table for name, table in tables.items() if table is not UNSET}


def plan(
    spark: SparkSession,
    problem: Problem,
    output: Path,
    scale: Scale,
    step: Callable[[str], None],
) -> dict[str, Any]:
    """Place a problem; the plan appears whole, and the working directory beside it is removed.

    Args:
        spark: a session.
        problem: what to place.
        output: a directory that does not exist yet. ``OUTPUT.stages`` holds finished stages, from
            which the same command resumes.
        scale: how.
        step: called with the name of every stage that begins.

    Returns:
        the report, which is also in ``report.json``.

    Raises:
        ProblemError: for problems that cannot be used.
        InfeasibleError: when joins fit nowhere, saying how many tuples/s are missing.
    """
    settings = {
        "format": FORMAT,
        "files": problem.fingerprint(),
        "parameters": parameter_dict(scale.parameters),
        "cells": scale.cells,
        "sample": scale.sample,
    }
    with Stages(beside(output, "stages"), settings, step) as stages:
        report = _Run(spark, problem, scale, stages).run(output)
        stages.remove()
    return report


@dataclass(frozen=True, eq=False)
class Located:
    """A problem whose pairs have the positions of their ends: stages ``sources`` and ``pairs``.

    Attributes:
        nodes: facts of the nodes.
        pairs: facts of the pairs.
        joins: the joins of logical streams.
        digest: of the problem.
    """

    nodes: dict[str, Any]
    pairs: dict[str, Any]
    joins: Joins
    digest: str


def locate(spark: SparkSession, problem: Problem, stages: Stages, objective: str) -> Located:
    """The first stages of placing and of checking.

    Raises:
        ProblemError: for a problem that cannot be used.
    """
    if not problem.count("matrix"):
        raise ProblemError(f"{problem.path}: tables.matrix: no pairs; there is nothing to place")
    spread_rows(spark, problem.count("nodes") + problem.count("matrix"))
    nodes = stages.once("nodes", lambda _: check_nodes(spark, problem))
    sinks = stages.once("sinks", lambda _: find_sinks(spark, problem))
    joins = joins_of(problem.operators, sinks["rows"], problem.path)
    sources, rows = stages.path("sources") / "rows", stages.path("pairs") / "rows"
    stages.once("sources", lambda place: write_sources(spark, problem, place / "rows"))
    pairs = stages.once(
        "pairs",
        lambda place: write_pairs(
            spark, problem, joins, sinks["facts"], sources, place / "rows", objective
        ),
    )
    digest = stages.once("digest", lambda _: {"digest": digest_of(problem, joins, sources, rows)})
    return Located(nodes, pairs, joins, digest["digest"])


def check_plan(
    spark: SparkSession,
    problem: Problem,
    plan: Path,
    header: PlanTablesHeader,
    step: Callable[[str], None],
) -> dict[str, Any]:
    """Check a plan in tables; a run is resumed as in `plan`.

    Args:
        spark: a session.
        problem: what it places.
        plan: its directory.
        header: what `open_plan` read there.
        step: called with the name of every stage that begins.

    Returns:
        as `nova_workloads.scale.check.check`.

    Raises:
        PlanError: for a plan of another problem.
    """
    path, written = plan / "plan.json", written_tables(plan, header)
    limits = {name: header.parameters.get(name) for name in ("bandwidth", "c_min")}
    parameters = NovaParameters(
        objective=header.objective if header.objective in OBJECTIVES else "latency",
        bandwidth=limits["bandwidth"],
        c_min=limits["c_min"] or 0.0,
    )
    files = [path, *(file for one in written.values() for file in parquet_files(one, PlanError))]
    settings = {"format": FORMAT, "files": problem.fingerprint() | fingerprint(files)}
    with Stages(beside(plan, "check"), settings, step) as stages:
        located = locate(spark, problem, stages, parameters.objective)
        if header.problem.digest != located.digest:
            stages.remove()
            raise PlanError(
                f"{path}: problem.digest: made for {header.problem.name!r} "
                f"({header.problem.digest}), not for {problem.name!r} ({located.digest}); plan "
                "this problem again"
            )
        pairs = spark.read.parquet(str(stages.path("pairs") / "rows"))
        query = query_of(problem, located.joins, parameters)
        breaks = tuple(header.breaks)
        report = stages.once(
            "check", lambda at: check(spark, problem, pairs, written, query, at, breaks)
        )
        stages.remove()
    return report


class _Run:
    def __init__(self, spark: SparkSession, problem: Problem, scale: Scale, stages: Stages) -> None:
        self._spark = spark
        self._problem = problem
        self._scale = scale
        self._stages = stages
        self._parameters = scale.parameters

    def _rows(self, stage: str) -> Path:
        return self._stages.path(stage) / "rows"

    def run(self, output: Path) -> dict[str, Any]:
        spark, problem, stages = self._spark, self._problem, self._stages
        located = locate(spark, problem, stages, self._parameters.objective)
        self._refuse_overload(located)
        self._query = query = query_of(problem, located.joins, self._parameters)
        rounds = self._rounds(located)
        places = [self._rows(name) for name in rounds]
        placed = read_kind(spark, places, "placed", query)
        count = located.pairs["pairs"]
        tables = stages.once("tables", lambda place: write_plan_tables(placed, count, place))
        written = {name: stages.path("tables") / name for name in tables["tables"]}
        spread = sum(one.get("spread", 0) for one in rounds.values())
        breaks = SPREAD_BREAKS if spread else ()
        pairs = spark.read.parquet(str(self._rows("pairs")))
        checked = stages.once(
            "check", lambda place: check(spark, problem, pairs, written, query, place, breaks)
        )
        report = {
            "problem": problem.name,
            "digest": located.digest,
            **located.nodes,
            "pairs": located.pairs["pairs"],
            "required": located.pairs["required"],
            "cells": self._cells(located.nodes["hosts"], located.pairs["pairs"]),
            "rounds": rounds,
            "cut_joins": tables["cut"],
            "spread_pieces": spread,
            **checked,
            "stages": stages.timings,
        }
        header = {
            "nova_plan": VERSION,
            "problem": {"name": problem.name, "digest": located.digest},
            "strategy": "nova",
            "objective": self._parameters.objective,
            "parameters": parameter_dict(self._parameters),
            "breaks": list(breaks),
            "notes": {name: report[name] for name in ("cells", "cut_joins", "spread_pieces")},
            "report": checked["report"],
            "totals": checked["totals"],
            "tables": {name: name for name in written},
        }
        with new_directory(output) as place:
            for name, table in written.items():
                link_table(table, place / name)
            draw(stages.path("check") / "density.npz", place / "space.png", problem.name)
            # Infinity, of unlimited capacities, is no JSON: it becomes null.
            report_text = msgspec.json.format(msgspec.json.encode(report), indent=2)
            write_text(place / "report.json", report_text.decode() + "\n")
            write_text(place / "plan.json", dump(header, ".json"))
        return report

    # --- rounds -----------------------------------------------------------------------------------

    def _cells(self, hosts: int, joins: int) -> int:
        cells = self._scale.cells or max(hosts // CELL_NODES, joins // CELL_JOINS)
        return 1 << max(0, math.ceil(math.log2(max(cells, 1))))

    def _rounds(self, located: Located) -> dict[str, dict[str, Any]]:
        """Place all joins; the facts of each round by its stage's name.

        Raises:
            InfeasibleError: when some find no room.
        """
        spark, query, pairs = self._spark, self._query, located.pairs
        hosts = hosts_of(self._problem.nodes(spark), query)
        joins = spark.read.schema(query.schemas[1]).parquet(str(self._rows("pairs")))
        rounds: dict[str, dict[str, Any]] = {}
        count, waiting, turn = located.nodes["hosts"], pairs["pairs"], 1
        rare = self._rare(hosts, pairs)
        if rare:
            chosen, able = F.col("join").isin(sorted(rare)), meets_any(query, rare)
            rounds["required"] = self._here("required", hosts.where(able), joins.where(chosen))
            hosts, joins = self._after("required", hosts, able), joins.where(~chosen)
        # No node takes these joins whole, so they would wait for the last round. By then the large
        # nodes are full, and the others have less room than a piece: these joins choose first.
        limit = min(located.nodes["largest_host"], self._parameters.bandwidth or math.inf)
        above = F.col("left_rate") + F.col("right_rate") > limit * (1 + 1e-9)
        if pairs["largest"] > limit and 0 < joins.where(above).count() <= LAST_JOINS:
            able = has_most_room(hosts, count, joins.where(above), query)
            rounds["cut"] = self._here("cut", hosts.where(able), joins.where(above))
            hosts, joins = self._after("cut", hosts, able), joins.where(~above)
            pairs = {**pairs, "largest": limit}
        while turn == 1 or (turn <= ROUNDS and waiting > LAST_JOINS and count):
            name = f"round-{turn}"
            cut, largest = turn == ROUNDS, pairs["largest"]
            make = partial(self._round, hosts, joins, count, waiting, largest, cut)
            facts = rounds[name] = self._stages.once(name, make)
            count, waiting, turn = facts["room"], facts["waiting"], turn + 1
            hosts = read_kind(spark, [self._rows(name)], "room", query)
            joins = read_kind(spark, [self._rows(name)], "waiting", query)
        if waiting > LAST_JOINS:
            raise _no_room(self._problem.name, waiting, facts["missing"])
        if waiting:
            able = has_most_room(hosts, count, joins, query)
            rounds["last"] = self._here("last", hosts.where(able), joins)
        return rounds

    def _round(
        self,
        hosts: DataFrame,
        joins: DataFrame,
        count: int,
        waiting: int,
        largest: float,
        cut: bool,
        place: Path,
    ) -> dict[str, Any]:
        seed, query = self._parameters.seed, self._query
        cells = self._cells(count, waiting)
        share = min(1.0, self._scale.sample / count, SAMPLE_JOINS / max(waiting, 1))
        coarse = Coarse.single()
        if cells > 1:
            some_joins = sample(joins, "pair", share, seed).toArrow()
            some_nodes = sample_of_nodes(hosts, share, seed, largest).toArrow()
            coarse = Coarse.of(some_nodes, some_joins, query, cells)
        rows = place / "rows"
        placed = place_cells(self._spark, hosts, joins, coarse, query, seed, cut, rows)
        return placed | {"cells": cells}

    def _here(self, name: str, hosts: DataFrame, joins: DataFrame) -> dict[str, Any]:
        """A round on the driver; joins left after it fit nowhere."""

        def make(place: Path) -> dict[str, Any]:
            some, rest = hosts.toArrow(), joins.toArrow()
            return place_here(some, rest, self._query, place / "rows")

        facts = self._stages.once(name, make)
        if facts["waiting"]:
            raise _no_room(self._problem.name, facts["waiting"], facts["missing"])
        return facts

    def _after(self, name: str, hosts: DataFrame, able: Column) -> DataFrame:
        """Hosts with the capacity that a round on the driver left; the able ones took part."""
        left = read_kind(self._spark, [self._rows(name)], "room", self._query)
        room = left.select("row", F.col("capacity").alias("left"))
        return (
            hosts.withColumn("able", F.coalesce(able, F.lit(False)))
            .join(F.broadcast(room), "row", "left")
            .withColumn("capacity", F.coalesce("left", F.when(~F.col("able"), F.col("capacity"))))
            .where("capacity > 0")
            .select(hosts.columns)
        )

    # --- rare requirements ------------------------------------------------------------------------

    def _rare(self, hosts: DataFrame, pairs: dict[str, Any]) -> list[int]:
        """Joins (rows of the query) whose requirement few nodes meet.

        Raises:
            InfeasibleError: when no node meets one.
        """
        query = self._query
        _, first = np.unique(query.requirement, return_index=True)
        some = [int(row) for row in first if query.rules[row] != ANY_NODE]
        if not some:
            return []

        def count(place: Path) -> dict[str, Any]:
            counts = hosts.agg(
                *(F.count(F.when(meets(query, row), 1)).alias(str(row)) for row in some)
            ).first()
            assert counts is not None
            return counts.asDict()

        hosts_of_each = self._stages.once("requirements", count)
        rare, nodes_left, joins_left = [], LAST_NODES, LAST_JOINS
        for row in sorted(some, key=lambda one: (hosts_of_each[str(one)], one)):
            alike = np.flatnonzero(query.requirement == query.requirement[row]).tolist()
            needed = sum(pairs["of_join"].get(str(one), 0.0) for one in alike)
            if not hosts_of_each[str(row)] and needed:
                raise InfeasibleError(
                    f"{self._problem.name}: no worker has what {str(query.names[row])!r} "
                    f"requires, whose joins need {needed:g} tuples/s",
                    needed,
                )
            joins = sum(pairs["pairs_of_join"].get(str(one), 0) for one in alike)
            able = hosts_of_each[str(row)]
            # The driver takes all of them together.
            if able <= min(RARE_NODES, nodes_left) and joins <= joins_left:
                rare += alike
                nodes_left, joins_left = nodes_left - able, joins_left - joins
        return rare

    def _refuse_overload(self, located: Located) -> None:
        nodes, pairs = located.nodes, located.pairs
        missing = pairs["required"] - nodes["capacity"]
        if missing > 1e-9 * pairs["required"] and self._parameters.on_full == "expand":
            raise InfeasibleError(
                f"{self._problem.name}: the joins need {pairs['required']:g} tuples/s and all "
                f"workers together have {nodes['capacity']:g}: {missing:g} tuples/s are missing; "
                "add capacity, lower rates, or accept overload with --on-full spread",
                missing,
            )


def query_of(problem: Problem, joins: Joins, parameters: NovaParameters) -> Query:
    """The query of a problem, the same in every part."""
    return Query(
        name=problem.name,
        parameters=parameters,
        names=joins.ids,
        asks=joins.asks or (NOTHING,) * len(joins),
        extras=tuple(problem.extras),
    )


def sample_of_nodes(hosts: DataFrame, share: float, seed: int, largest: float) -> DataFrame:
    """A share of the nodes for a share of the joins.

    If there are few very large nodes, all are in the sample, each with its share of capacity,
    provided that the largest join (tuples/s) still fits.
    """
    large = F.col("capacity") * share >= largest
    if share >= 1 or not 0 < hosts.where(large).count() <= LARGE_NODES:
        return sample(hosts, "row", share, seed)
    shared = hosts.where(large).withColumn("capacity", F.col("capacity") * share)
    return sample(hosts.where(~large), "row", share, seed).union(shared)


def has_most_room(hosts: DataFrame, count: int, joins: DataFrame, query: Query) -> Column:
    """Whether a node is one of about `LAST_NODES` of ``count`` with the most room.

    There are as many for each requirement of the joins: nodes that meet a rare one may be small.
    """
    if count <= LAST_NODES:
        return F.lit(True)
    waiting = sorted(row["join"] for row in joins.select("join").distinct().collect())
    _, first = np.unique(query.requirement[waiting], return_index=True)
    chosen = F.lit(False)
    for able in (meets(query, waiting[at]) for at in first):
        roomy = _most_room(hosts.where(able), LAST_NODES // len(first), query.parameters.seed)
        chosen = chosen | (able & roomy)
    return chosen


def _most_room(hosts: DataFrame, most: int, seed: int) -> Column:
    # Whole classes of capacity and a share of the last, independent of the order of rows.
    level = F.floor(F.log("capacity") * 1000)
    rows = hosts.groupBy(level.alias("level")).count().orderBy(F.desc("level")).collect()
    left = most
    for row in rows:
        if row["count"] > left:
            some = in_sample("row", left / row["count"], seed)
            chosen: Column = (level > row["level"]) | ((level == row["level"]) & some)
            return chosen
        left -= row["count"]
    return F.lit(True)


def write_plan_tables(placed: DataFrame, pairs: int, place: Path) -> dict[str, Any]:
    """Write the tables of a plan, instances in the order of pairs.

    Args:
        placed: instances.
        pairs: of the problem.
        place: an existing directory.

    Returns:
        names of the tables, and how many joins are cut.
    """
    bounds = [f"{side}_{end}" for side in ("left", "right") for end in ("begin", "end")]
    columns = ["operator", "node", *bounds]
    instances = placed.select("pair", *columns)
    write_in_order(instances, "pair", pairs, place / "instances", bounds, drop=True)
    cut = placed.where("left_rates is not null").dropDuplicates(["pair"])
    sides = [
        cut.select(
            "pair",
            "operator",
            F.lit(side).alias("side"),
            F.col(f"{side}_rates").alias("rates"),
        ).where(F.size("rates") > 1)
        for side in ("left", "right")
    ]
    count = cut.count()
    if count:
        both = sides[0].union(sides[1])
        write_in_order(both, "pair", pairs, place / "partitions", ["side"], drop=True)
    return {"tables": ["instances", *(["partitions"] if count else [])], "cut": count}


def _no_room(name: str, joins: int, missing: float) -> InfeasibleError:
    return InfeasibleError(
        f"{name}: {joins:,} joins find no room even when cut: {missing:g} tuples/s are missing; "
        "add capacity, lower sigma to cut finer, or accept overload with --on-full spread",
        missing,
    )
