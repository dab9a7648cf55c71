"""Parts of problems, cells, digests and stages of placement at scale; Spark is in the e2e file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import NovaError, PlanError, ProblemError
from nova_core.io.columnar import write_columns
from nova_core.io.files import read_problem, write_problem
from nova_core.model.objectives import leg_weights
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.model.requirements import NOTHING, Asks, RequiresPart
from nova_core.model.verify import verify
from nova_core.placement.geometric_median import geometric_median, pair_anchors
from nova_core.strategies.nova import Nova
from nova_core.strategies.nova_parameters import NovaParameters
from nova_workloads import topology
from nova_workloads.scale import coarse, part, stages
from nova_workloads.scale.generate import Shape
from nova_workloads.scale.tables import Problem as Tables
from nova_workloads.scale.tables import facts_of

QUICK = NovaParameters(refine=False)


def tables_of(problem: Problem) -> tuple[pa.Table, pa.Table]:
    """Hosts and joins of a problem as parts have them."""
    n = problem.nodes
    hosts = np.flatnonzero(n.worker & (n.capacity > 0))
    nodes = {
        "row": hosts,
        "id": n.ids[hosts].tolist(),
        "position": part.lists_of_rows(n.position[hosts]),
        "capacity": n.capacity[hosts],
    }
    joins = {
        "pair": np.arange(len(problem.matrix)),
        "operator": problem.pair_names(),
        "join": problem.matrix.join,
        "ends": part.lists_of_rows(problem.pair_ends),
        "anchors": part.lists_of_rows(pair_anchors(problem).reshape(len(problem.matrix), -1)),
        "point": part.lists_of_rows(
            geometric_median(pair_anchors(problem), leg_weights(problem, "latency"))
        ),
        "left_rate": problem.left_rate,
        "right_rate": problem.right_rate,
        "output_rate": problem.matrix.output_rate,
    }
    if n.height is not None:
        nodes["height"] = n.height[hosts]
        joins["heights"] = part.lists_of_rows(n.height[problem.pair_ends])
    return pa.table(nodes), pa.table(joins)


def query_of(problem: Problem, parameters: NovaParameters = QUICK) -> part.Query:
    extras = ("height",) if problem.nodes.height is not None else ()
    ids = problem.joins.ids
    return part.Query("test", parameters, ids, (NOTHING,) * len(ids), extras)


def plan_of(problem: Problem, instances: pa.Table) -> Plan:
    """A plan of instances as parts return them."""
    instances = instances.sort_by([("pair", "ascending"), ("left_begin", "ascending")])
    names = ("pair", "row", "left_begin", "left_end", "right_begin", "right_end")
    cuts = {
        2 * row["pair"] + side: np.array(row[f"{name}_rates"])
        for row in instances.to_pylist()
        for side, name in enumerate(("left", "right"))
        if row["left_rates"] is not None
    }
    partitions = Partitions.whole(problem).with_cuts(cuts)
    columns = (instances.column(name).to_numpy() for name in names)
    return Plan(problem, "nova", "latency", partitions, Instances(*columns))


def in_cells(problem: Problem, cells: int, share: float, parameters: NovaParameters) -> Plan:
    """A plan as Spark makes it, one cell after the other."""
    query = query_of(problem, parameters)
    nodes, joins = tables_of(problem)
    above = problem.required_capacity > problem.nodes.capacity[problem.nodes.worker].max()
    large, joins = joins.filter(pa.array(above)), joins.filter(pa.array(~above))
    first, left, nodes, _ = part.place_tables(nodes, large, query, cut=True)
    assert len(left) == 0
    random = np.random.default_rng(1)
    some = (pa.array(random.random(len(table)) < share) for table in (nodes, joins))
    sampled = [table.filter(mask) for table, mask in zip((nodes, joins), some, strict=True)]
    guide = coarse.Coarse.of(*sampled, query, cells)
    drawn = guide.draw(joins, query, 0)
    home = guide.cells.find(part.rows_of_lists(nodes, "position"))
    placed, waiting, room = [first], [joins.filter(pa.array(drawn < 0))], []
    for cell in range(cells):
        mine = nodes.filter(pa.array(home == cell)), joins.filter(pa.array(drawn == cell))
        done = part.place_tables(*mine, query, cut=False)
        for kept, table in zip((placed, waiting, room), done[:3], strict=True):
            kept.append(table)
    rest = part.place_tables(pa.concat_tables(room), pa.concat_tables(waiting), query, cut=True)
    assert len(rest[1]) == 0
    return plan_of(problem, pa.concat_tables([*placed, rest[0]]))


# --- parts ----------------------------------------------------------------------------------------


def test_a_part_that_is_everything_is_placed_as_one_machine_does() -> None:
    problem = topology.generate(600, seed=3)
    whole = Nova(QUICK).place(problem)
    placed, waiting, room, _ = part.place_tables(*tables_of(problem), query_of(problem), cut=True)
    mine = plan_of(problem, placed)
    assert len(waiting) == 0
    assert np.array_equal(mine.instances.node, whole.instances.node)
    left = problem.nodes.capacity - mine.load
    assert np.allclose(room.column("capacity").to_numpy(), left[room.column("row").to_numpy()])


def test_ends_elsewhere_count_with_their_height() -> None:
    """A part of few nodes: costs to sources that it does not have are those of the whole."""
    problem = topology.generate(300, seed=5)
    height = np.random.default_rng(0).exponential(5.0, 300)
    problem = replace(problem, nodes=replace(problem.nodes, height=height))
    nodes, joins = tables_of(problem)
    rows = nodes.column("row").to_numpy()
    some = nodes.filter(pa.array(rows % 3 == 0))
    local = part.problem_of(some, joins, query_of(problem))
    ours, whole = local.pair_ends, problem.pair_ends
    assert local.nodes.worker.sum() == len(some)
    assert np.array_equal(local.nodes.position[ours], problem.nodes.position[whole])
    assert local.nodes.height is not None
    assert np.array_equal(local.nodes.height[ours], height[whole])


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(40, 400),
    seed=st.integers(0, 10**6),
    cells=st.sampled_from([1, 2, 4, 8]),
    refine=st.booleans(),
)
def test_cells_and_a_last_round_make_a_plan_that_holds(
    nodes: int, seed: int, cells: int, refine: bool
) -> None:
    problem = topology.generate(nodes, seed=seed, rate_max=50)
    plan = in_cells(problem, cells, 0.5, NovaParameters(refine=refine))
    report = verify(plan)
    assert report.ok, report.summary()


@pytest.mark.parametrize("seed", range(3))
def test_joins_larger_than_any_node_find_room(seed: int) -> None:
    """Of 60 % of all capacity: after all others only room in small nodes would be left."""
    problem = topology.generate(3000, seed=seed, rate_max=110)
    plan = in_cells(problem, 4, 0.4, QUICK)
    assert (problem.required_capacity > problem.nodes.capacity[problem.nodes.worker].max()).any()
    assert verify(plan).ok


def test_cells_cost_little_more_than_one_machine() -> None:
    """0.6 % more at 100,000 nodes in 64 cells; cells of few nodes, as here, cost more."""
    problem = topology.generate(20_000, seed=1)
    single = Nova(QUICK).place(problem).link_latency().sum()
    ratio = in_cells(problem, 8, 0.3, QUICK).link_latency().sum() / single
    assert 0.99 < ratio < 1.02


def test_what_fits_nowhere_is_handed_back() -> None:
    problem = topology.generate(100, seed=0)
    scarce = problem.with_capacity(np.minimum(problem.nodes.capacity, 1.0))
    nodes, joins = tables_of(scarce)
    placed, waiting, room, _ = part.place_tables(nodes, joins, query_of(scarce), cut=False)
    assert len(placed) == 0
    assert waiting.equals(joins)
    assert len(room) == len(nodes)


def test_joins_wait_whose_requirement_no_node_of_the_part_meets() -> None:
    """Others are placed, and nodes that meet none of the requirements keep their room."""
    problem = topology.generate(200, seed=0)
    nodes, joins = tables_of(problem)
    turns = np.arange(len(joins)) % 2
    joins = joins.set_column(2, "join", pa.array(turns))
    asks = NOTHING, Asks(requires=RequiresPart(tags=["gpu"]))
    query = part.Query("test", QUICK, np.array(["plain", "on-gpu"]), asks, ("tags",))
    plain = nodes.append_column("tags", pa.array(["arm"] * len(nodes)))
    placed, waiting, _, _ = part.place_tables(plain, joins, query, cut=False)
    assert set(placed.column("pair").to_pylist()) == set(np.flatnonzero(turns == 0).tolist())
    assert waiting.equals(joins.filter(pa.array(turns == 1)))
    # One node has it, and room for all.
    rich = nodes.column("capacity").to_pylist()
    rich[5] = 1e6
    some = nodes.set_column(3, "capacity", pa.array(rich)).append_column(
        "tags", pa.array(["gpu" if k == 5 else "arm" for k in range(len(nodes))])
    )
    alone = joins.filter(pa.array(turns == 1))
    placed, waiting, room, _ = part.place_tables(some, alone, query, cut=False)
    assert set(placed.column("row").to_pylist()) == {nodes.column("row")[5].as_py()}
    assert len(waiting) == 0 and room.column("row").equals(nodes.column("row"))


# --- cells ----------------------------------------------------------------------------------------


def test_cells_hold_about_as_many_points_each() -> None:
    points = np.random.default_rng(0).normal(size=(10_000, 3))
    cells = coarse.Cells.of(points, 16)
    counts = np.bincount(cells.find(points), minlength=16)
    assert counts.min() > 600 and counts.max() < 650


def test_points_that_are_all_the_same_are_in_one_cell() -> None:
    points = np.zeros((100, 2))
    cells = coarse.Cells.of(points, 8)
    assert len(np.unique(cells.find(points))) == 1


def test_draws_depend_on_the_join_alone() -> None:
    problem = topology.generate(500, seed=2)
    query = query_of(problem)
    nodes, joins = tables_of(problem)
    guide = coarse.Coarse.of(nodes, joins, query, 8)
    whole = guide.draw(joins, query, 7)
    assert np.array_equal(guide.draw(joins.slice(50, 40), query, 7), whole[50:90])
    assert not np.array_equal(guide.draw(joins, query, 8), whole)


def test_joins_that_must_be_cut_are_spread_over_cells() -> None:
    problem = topology.generate(2000, seed=2)
    nodes, joins = tables_of(problem)
    query = query_of(problem, NovaParameters(refine=False, bandwidth=3.0))
    assert (problem.required_capacity > 3.0).mean() > 0.99
    cells = coarse.Coarse.of(nodes, joins, query, 8).draw(joins, query, 0)
    assert (cells >= 0).all() and np.bincount(cells, minlength=8).max() < len(joins) / 2


def test_no_group_of_joins_that_nothing_is_like_grows_with_the_problem() -> None:
    problem = topology.generate(2000, seed=2)
    nodes, joins = tables_of(problem)
    query = query_of(problem)
    for none in ((nodes, joins.slice(0, 0)), (nodes.slice(0, 0), joins)):
        cells = coarse.Coarse.of(*none, query, 8).draw(joins, query, 0)
        assert (cells < 0).all() and len(np.unique(cells)) == len(joins)


# --- stages ---------------------------------------------------------------------------------------


def test_a_stage_is_made_once_and_not_at_all_if_it_fails(tmp_path: Path) -> None:
    made = []

    def make(place: Path) -> dict[str, int]:
        (place / "file").write_text("x")
        made.append(place)
        if len(made) == 1:
            raise RuntimeError("ended")
        return {"rows": 3}

    with stages.Stages(tmp_path / "work", {"a": 1}, lambda _: None) as run:
        with pytest.raises(RuntimeError):
            run.once("one", make)
        assert not run.path("one").exists()
        assert run.once("one", make) == run.once("one", make) == {"rows": 3}
    assert len(made) == 2
    with stages.Stages(tmp_path / "work", {"a": 1}, lambda _: None) as run:
        assert run.once("one", make) == {"rows": 3}
        assert run.timings["one"]["peak_mib"] > 10


def test_stages_of_other_settings_or_in_use_are_refused(tmp_path: Path) -> None:
    with (
        stages.Stages(tmp_path / "work", {"cells": 4}, lambda _: None),
        pytest.raises(NovaError, match=r"process \d+ uses it"),
    ):
        stages.Stages(tmp_path / "work", {"cells": 4}, lambda _: None)
    with pytest.raises(NovaError, match="begun with cells 4, not 8"):
        stages.Stages(tmp_path / "work", {"cells": 8}, lambda _: None)


def test_input_files_that_changed_are_named(tmp_path: Path) -> None:
    earlier = {"files": {f"/{name}": [1, 2] for name in "abc"}}
    with stages.Stages(tmp_path / "work", earlier, lambda _: None):
        pass
    now = {"files": earlier["files"] | {"/b": [1, 3]}}
    with pytest.raises(NovaError, match="work: begun with other files: /b has changed, is new or"):
        stages.Stages(tmp_path / "work", now, lambda _: None)


# --- tables ---------------------------------------------------------------------------------------


def test_a_directory_of_parts_is_one_table(tmp_path: Path) -> None:
    problem = topology.generate(50, seed=4)
    write_problem(problem, tmp_path / "one")
    write_problem(problem, tmp_path / "parts")
    header = (tmp_path / "parts" / "problem.yaml").read_text()
    for name in ("nodes", "sources", "matrix"):
        file = tmp_path / "parts" / f"{name}.parquet"
        table = pa.parquet.read_table(file)
        file.unlink()
        (tmp_path / "parts" / name).mkdir()
        header = header.replace(f"{name}.parquet", name)
        for number, begin in enumerate(range(0, len(table), 7)):
            rows = table.slice(begin, 7)
            columns = {c: rows.column(c).combine_chunks() for c in rows.column_names}
            write_columns(tmp_path / "parts" / name / f"part-{number:03d}.parquet", columns)
    (tmp_path / "parts" / "problem.yaml").write_text(header)
    assert read_problem(tmp_path / "parts").same_as(read_problem(tmp_path / "one"))


def test_a_table_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    table = tmp_path / "instances.parquet"
    table.write_bytes(b"PAR1 and no more")
    with pytest.raises(PlanError, match=r"instances\.parquet: no readable table: ") as raised:
        facts_of(table, PlanError)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tables": {"nodes": "nodes.parquet"}}, "tables of nodes, sources and matrix are needed"),
        ({"links": []}, "links: problems with links fit one machine only"),
        ({"metrics": ["energy"]}, "metrics: problems with metrics fit one machine only"),
        ({"query": {"operators": []}}, "at least one join is needed"),
    ],
)
def test_problems_that_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    operator = {"id": "j", "left": "a", "right": "b", "sink": "n", "match": "matrix"}
    tables = {name: f"{name}.parquet" for name in ("nodes", "sources", "matrix")}
    header = {"nova": 1, "query": {"operators": [operator]}, "tables": tables} | change
    (tmp_path / "problem.yaml").write_text(json.dumps(header))
    with pytest.raises(ProblemError, match=message):
        _ = Tables.open(tmp_path).operators


@pytest.mark.parametrize(
    "change", [{"nodes": 3}, {"sinks": 0}, {"sinks": 10**6}, {"source_clusters": 11}]
)
def test_shapes_that_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ProblemError, match="expected"):
        Shape(**{"nodes": 1000, **change})
