"""Plan documents: what stands in them, and what contradicts itself."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_core.errors import NovaError, PlanError
from nova_core.io import read_plan, write_plan
from nova_core.io.columns import write_tables
from nova_core.io.plan_writing import edge_columns, load_columns
from nova_core.io.validation import validate_problem
from nova_core.model import (
    Instances,
    JoinMatrix,
    Joins,
    Nodes,
    Partitions,
    Plan,
    Problem,
    Routes,
    Sources,
)


@pytest.fixture
def plan() -> Plan:
    """Two pairs; the first is cut 2 x 1 over nodes a and b, the second whole on a."""
    problem = validate_problem(
        Problem(
            Nodes(
                np.array(["s", "a", "b"]),
                np.array([[0.0, 0], [3, 4], [6, 8]]),
                np.array([np.inf, 60, 60]),
                np.array([False, True, True]),
            ),
            Sources(
                np.array(["p1", "p2", "h1"]),
                np.array([1, 2, 2]),
                np.array(["p", "p", "h"]),
                np.array([20.0, 10, 5]),
                np.array([8.0, 8, 2]),
            ),
            Joins(np.array(["tw"]), np.array(["p"]), np.array(["h"]), np.array([0])),
            JoinMatrix(np.zeros(2, int), np.array([0, 1]), np.array([2, 2]), np.array([2.0, 1])),
            name="little",
        )
    )
    return Plan(
        problem,
        "by-hand",
        "latency",
        Partitions(np.array([0, 2, 3, 4, 5]), np.array([15.0, 5, 5, 10, 5])),
        Instances(*np.array([[0, 1, 0, 1, 0, 1], [0, 2, 1, 2, 0, 1], [1, 1, 0, 1, 0, 1]]).T.copy()),
        {"sigma": 0.4},
        np.array([[1.0, 2], [3, 4]]),
    )


def document(plan: Plan, path: Path) -> dict[str, Any]:
    write_plan(plan, path)
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_what_stands_in_it(plan: Plan, tmp_path: Path) -> None:
    d = document(plan, tmp_path / "plan.json")
    assert d["problem"] == {"name": "little", "digest": plan.problem.digest}
    assert d["partitions"] == [
        {
            "operator": "tw/p1*h1",
            "side": "left",
            "rates": [15, 5],
            "shares": [0.75, 0.25],
            "partitioner": "sequence-share",
        }
    ]
    assert d["instances"][1] == {
        "operator": "tw/p1*h1",
        "replica": 1,
        "of": 2,
        "node": "b",
        "left": [1, 2],
        "right": [0, 1],
        "replicas": 1,
        "required_capacity": 10,
    }
    assert d["edges"][3] == {
        "from": "a",
        "to": "b",
        "consumer": 1,
        "input": "left",
        "carries": "p1",
        "partitions": [1, 2],
        "rate": 5,
        "latency": 5,
        "bandwidth": 40,
    }
    assert d["edges"][2] == {
        "from": "a",
        "to": "s",
        "producer": 0,
        "rate": 1.5,
        "latency": 5,
        "bandwidth": 15,
    }
    # Legs: 0+5+5 and 5+0+10 of the cut pair, their mean; 5+5+5 of the whole one.
    assert d["totals"]["objective"] == pytest.approx(12.5 + 15)
    assert d["loads"] == [
        {"node": "a", "load": 35, "capacity": 60},
        {"node": "b", "load": 10, "capacity": 60},
    ]
    assert d["virtual"][1]["position"] == [3, 4]
    assert d["report"]["ok"] is True


def test_only_what_decides_is_needed(plan: Plan, tmp_path: Path) -> None:
    d = document(plan, tmp_path / "plan.json")
    keep = {"operator", "node", "left", "right", "side", "rates"}
    for section in ("instances", "partitions"):
        d[section] = [{k: v for k, v in row.items() if k in keep} for row in d[section]]
    d["instances"].reverse()
    d["instances"][1:] = d["instances"][:0:-1]  # rows of a pair keep their order
    for section in ("edges", "loads", "totals", "report"):
        del d[section]
    (tmp_path / "short.json").write_text(json.dumps(d))
    assert read_plan(tmp_path / "short.json", plan.problem).same_as(plan)


def _set(*steps: Any) -> Callable[[dict[str, Any]], None]:
    *way, last, value = steps

    def change(d: Any) -> None:
        for step in way:
            d = d[step]
        d[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set("instances", 0, "node", "z"), "instances[0].node: unknown node 'z'; accepted are"),
        (_set("instances", 0, "operator", "z"), "instances[0].operator: unknown operator 'z'"),
        (
            _set("instances", 0, "operator", "tw/h1*h1"),
            "instances[0].operator: unknown operator 'tw/h1*h1'; did you mean 'tw/p",
        ),
        (
            _set("instances", 0, "left", [0, 3]),
            "instances[0].left: [0, 3] is no range of the input's partitions; it needs 0 <= begin",
        ),
        (_set("instances", 2, "right", [0, 0]), "instances[2].right: [0, 0] is no range of"),
        (_set("instances", 0, "left", [-1, 1]), "instances[0].left: [-1, 1] is no range"),
        (_set("instances", 0, "left", [0]), "instances[0].left: [0] is not accepted; a list of"),
        (
            _set("instances", 0, "required_capacity", 21),
            "instances[0].required_capacity: 21, but by the plan it is 20",
        ),
        (_set("instances", 0, "replicas", 2), "instances[0].replicas: 2, but by the plan it is 1"),
        (_set("instances", 1, "replica", 0), "instances[1].replica: 0, but by the plan it is 1"),
        (_set("instances", 1, "of", 3), "instances[1].of: 3, but by the plan it is 2"),
        (_set("instances", 1, "feeds", 3), "instances[1].feeds: 3 is no row of the 3 instances"),
        (_set("edges", 0, "rate", 14), "edges[0].rate: 14, but by the plan it is 15"),
        (_set("edges", 0, "latency", 1), "edges[0].latency: 1, but by the plan it is 0"),
        (_set("edges", 0, "bandwidth", 1), "edges[0].bandwidth: 1, but by the plan it is 120"),
        (_set("edges", 0, "to", "b"), "edges[0].to: 'b', but by the plan it is 'a'"),
        (_set("edges", 0, "partitions", [0, 2]), "edges[0].partitions: [0, 2], but by the plan it"),
        (_set("edges", 0, "consumer", 1), "edges[0].consumer: 1, but by the plan it is 0"),
        (_set("edges", 0, "producer", 1), "edges[0].producer: 1, but by the plan it is none"),
        (_set("edges", 0, "carries", "p2"), "edges[0].carries: 'p2', but by the plan it is 'p1'"),
        (_set("edges", 2, "input", "left"), "edges[2].input: 'left', but by the plan it is none"),
        (_set("edges", []), "edges: 0 rows, but the plan makes 9"),
        (_set("partitions", 0, "rates", [15, 6]), "partitions[0].shares: [0.75, 0.25], but by the"),
        (
            _set("partitions", 0, "rates", []),
            "partitions[0].rates: [] is not accepted; a list of l",
        ),
        (
            _set("partitions", 0, "partitioner", "hash"),
            "one of key-share, sequence-share is expected",
        ),
        (_set("totals", "objective", 1), "totals.objective: 1.0, but by the plan it is 27.5"),
        (
            _set("loads", 1, "load", 9),
            "loads[1].load: 9, but by the plan it is 10",
        ),
        (_set("virtual", 0, "position", [1]), "virtual[0].position: 1 coordinates, 2 are needed"),
        (
            _set("problem", "digest", "00"),
            "problem.digest: made for 'little' (00), not for 'little'",
        ),
        (_set("nova_plan", 1), "nova_plan: format version 1; 2 is read here"),
        (_set("instance", []), "unknown field 'instance'; did you mean 'instances'?"),
        (
            _set("instances", 0, "nod", "a"),
            "instances[0]: unknown field 'nod'; did you mean 'node'?",
        ),
        (_set("strategy", 3), "strategy: 3 is not accepted; text is expected; write it in quotes"),
    ],
)
def test_contradictions_and_bad_fields(
    plan: Plan, tmp_path: Path, change: Callable[[Any], None], expected: str
) -> None:
    d = document(plan, tmp_path / "plan.json")
    change(d)
    (tmp_path / "plan.json").write_text(json.dumps(d))
    with pytest.raises(PlanError) as caught:
        read_plan(tmp_path / "plan.json", plan.problem)
    assert expected in str(caught.value)
    assert "plan.json: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_same_cut_or_position_twice(plan: Plan, tmp_path: Path) -> None:
    d = document(plan, tmp_path / "plan.json")
    for section, expected in (("partitions", "is cut twice"), ("virtual", "position already")):
        twice = d | {section: [*d[section], d[section][0]]}
        (tmp_path / "twice.json").write_text(json.dumps(twice))
        with pytest.raises(PlanError, match=rf"{section}\[\d\]\..*{expected}"):
            read_plan(tmp_path / "twice.json", plan.problem)


def test_plan_for_another_problem(plan: Plan, tmp_path: Path) -> None:
    other = plan.problem.with_capacity(np.array([np.inf, 60, 61]))
    for name in ("plan.json", "plan.yaml", "plan"):
        write_plan(plan, tmp_path / name)
        with pytest.raises(PlanError, match=r"made for 'little' \(.*plan this problem again"):
            read_plan(tmp_path / name, other)


@pytest.mark.parametrize("keep", [0, 1, 100, 1000, -3])
def test_truncated(plan: Plan, tmp_path: Path, keep: int) -> None:
    write_plan(plan, tmp_path / "plan.json")
    whole = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(whole[:keep])
    with pytest.raises(PlanError, match=r"plan\.json: (empty|line \d+, column \d+: no JSON)"):
        read_plan(tmp_path / "plan.json", plan.problem)


def test_files_that_are_no_plan(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        read_plan(tmp_path / "absent.json", plan.problem)
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="not UTF-8 text"):
        read_plan(tmp_path / "plan.json", plan.problem)
    (tmp_path / "plan.json").write_text('{"nova": 1}')
    with pytest.raises(PlanError, match="field 'nova_plan' is missing; a line 'nova_plan: 2'"):
        read_plan(tmp_path / "plan.json", plan.problem)
    (tmp_path / "dir").mkdir()
    with pytest.raises(PlanError, match=r"holds no plan\.yaml or plan\.json"):
        read_plan(tmp_path / "dir", plan.problem)


def test_parameters_json_cannot_hold(plan: Plan, tmp_path: Path) -> None:
    wrong = dataclasses.replace(plan, parameters={"budget": {"t_b": np.inf}})
    with pytest.raises(PlanError, match=r"plan: parameters\.budget\.t_b: inf cannot be written"):
        write_plan(wrong, tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []
    numpy = dataclasses.replace(plan, parameters={"k": np.int64(3), "range": (1, np.float64(0.5))})
    write_plan(numpy, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json", plan.problem).parameters == {"k": 3, "range": [1, 0.5]}


def test_routes_stand_with_instances_and_edges(plan: Plan, tmp_path: Path) -> None:
    ways = [[1, 1], [2, 1], [1, 0], [1, 2], [2, 2], [2, 1, 0], [2, 0, 1], [2, 1], [1, 0]]
    offset = np.concatenate(([0], np.cumsum([len(way) for way in ways])))
    routed = dataclasses.replace(plan, routes=Routes(offset, np.concatenate(ways)))
    d = document(routed, tmp_path / "plan.json")
    assert [d["instances"][1][f"{leg}_route"] for leg in ("left", "right", "result")] == [
        ["a", "b"],
        ["b", "b"],
        ["b", "a", "s"],
    ]
    assert read_plan(tmp_path / "plan.json", plan.problem).same_as(routed)
    del d["instances"][1]["left_route"]
    (tmp_path / "plan.json").write_text(json.dumps(d))
    with pytest.raises(PlanError, match=r"instances\[1\]\.left_route: no node; all instances have"):
        read_plan(tmp_path / "plan.json", plan.problem)


@pytest.mark.parametrize(
    ("table", "column", "values", "expected"),
    [
        ("instances", "node", ["a", "z", "a"], "row 2, column 'node': unknown node 'z'"),
        (
            "instances",
            "operator",
            ["tw/p1*h1", "tw/h1*h1", "tw/p2*h1"],
            "row 2, column 'operator': unknown operator 'tw/h1*h1'",
        ),
        ("instances", "left_end", [1, 3, 1], "row 2, column 'left': [1, 3] is no range of"),
        ("instances", "node", [1, 2, 3], "column 'node': holds int64; text is needed"),
        ("instances", "node", ["a", None, "a"], "row 2, column 'node': no value"),
        ("instances", "left_end", [1.5, 2, 1], "column 'left_end': holds double; whole numbers"),
        ("instances", "required_capacity", [20.0, 10, 16], "row 3, column 'required_capacity': 16"),
        ("instances", "of", [2, 1, 1], "row 2, column 'of': 1, but by the plan it is 2"),
        (
            "partitions",
            "shares",
            [[0.7, 0.3]],
            "row 1, column 'shares': [0.7, 0.3], but by the plan it is [0.75, 0.25]",
        ),
        ("partitions", "rates", [["5"]], "column 'rates': holds string; numbers are needed"),
        ("partitions", "side", ["up"], "row 1, column 'side': unknown side 'up'; acc"),
        ("edges", "rate", [14.0, *[5] * 8], "row 1, column 'rate': 14, but by the plan it is 15"),
        ("edges", "to", ["b"] * 9, "row 1, column 'to': 'b', but by the plan it is 'a'"),
        (
            "edges",
            "partitions",
            [[0, 2]] * 9,
            "row 1, column 'partitions': [0, 2], but by the plan",
        ),
        ("loads", "load", [35.0, 11], "row 2, column 'load': 11, but by the plan it is 10"),
        ("virtual", "x", [np.nan, None], "row 2, column 'x': no value"),
        (
            "virtual",
            "operator",
            ["tw/p1*h1"] * 2,
            "row 2, column 'operator': this operator has a virtual position already",
        ),
    ],
)
def test_contradictions_in_tables(
    plan: Plan, tmp_path: Path, table: str, column: str, values: list[Any], expected: str
) -> None:
    write_plan_with_flows(plan, tmp_path)
    file = tmp_path / f"{table}.parquet"
    content = pq.read_table(file)
    at = content.column_names.index(column)
    pq.write_table(content.set_column(at, column, pa.array(values)), file)
    with pytest.raises(PlanError, match=re.escape(expected)) as caught:
        read_plan(tmp_path, plan.problem)
    assert f"{table}.parquet: " in str(caught.value)


def write_plan_with_flows(plan: Plan, directory: Path) -> None:
    """Tables that another program has written, with those that follow from the others."""
    write_plan(plan, directory)
    header = json.loads((directory / "plan.json").read_text())
    assert not {"edges", "loads"} & set(header["tables"])
    tables = {"edges": edge_columns(plan), "loads": load_columns(plan)}
    header["tables"] |= write_tables(tables, directory, "parquet")
    (directory / "plan.json").write_text(json.dumps(header))
    assert read_plan(directory, plan.problem).same_as(plan)


def test_tables_that_lack_rows_or_are_cut_short(plan: Plan, tmp_path: Path) -> None:
    write_plan_with_flows(plan, tmp_path)
    file = tmp_path / "edges.parquet"
    whole = pq.read_table(file)
    pq.write_table(whole.slice(1), file)
    with pytest.raises(PlanError, match=r"edges\.parquet: 8 rows, but the plan makes 9"):
        read_plan(tmp_path, plan.problem)
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(PlanError, match=r"edges\.parquet: no readable table"):
        read_plan(tmp_path, plan.problem)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_an_error_or_the_plan(
    plan: Plan, tmp_path: Path, data: st.DataObject
) -> None:
    write_plan(plan, tmp_path / "plan.json")
    tokens = re.split(r"(\W+)", (tmp_path / "plan.json").read_text())
    at = data.draw(st.integers(0, len(tokens) - 1))
    tokens[at] = data.draw(st.sampled_from(["", "[]", "null", "-1", "1e999", '"', "{", "7", '"a"']))
    (tmp_path / "plan.json").write_text("".join(tokens))
    try:
        read_plan(tmp_path / "plan.json", plan.problem)
    except NovaError as error:
        assert "\n" not in str(error)
        assert "plan.json" in str(error)


@pytest.mark.parametrize("name", ["plan.json", "plan.yaml", "plan"])
@pytest.mark.parametrize(
    ("rate", "place"), [(1e308, r"instances\[0\]\.required_capacity"), (3e307, r"totals\.\w+")]
)
def test_sums_that_no_float_holds_are_refused(
    plan: Plan, tmp_path: Path, name: str, rate: float, place: str
) -> None:
    sources = plan.problem.sources
    rates = np.full(len(sources), rate)
    sources = dataclasses.replace(sources, rate=rates, tuple_bytes=None)
    problem = dataclasses.replace(plan.problem, sources=sources)
    large = Plan.whole(problem, np.array([1, 1]), "by hand")
    with (
        np.errstate(over="ignore"),
        pytest.raises(PlanError, match=f"plan: {place}: inf cannot be written"),
    ):
        write_plan(large, tmp_path / name)
