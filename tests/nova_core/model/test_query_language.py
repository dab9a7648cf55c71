"""Queries with columns: as SQL and as operators, and what is outside the language."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core import place, read_problem, write_problem
from nova_core.errors import ProblemError
from nova_core.io.expressions import Column, Text, read_condition, read_value
from nova_core.io.sql import read_sql

STREAMS = {
    "pressure": [Column("pressure", "region", "text"), Column("pressure", "value", "float")],
    "humidity": [
        Column("humidity", "region", "text"),
        Column("humidity", "value", "float"),
        Column("humidity", "n", "int"),
    ],
    "wind": [Column("wind", "region", "text"), Column("wind", "speed", "float")],
}
SQL = """
    SELECT p.region, avg(p.value) AS mean, count(*) AS n
    FROM pressure p JOIN humidity h ON p.region = h.region AND abs(p.value - h.value) <= 2.5
    WHERE p.value > 10 AND h.n BETWEEN 1 AND 3 AND NOT h.value + p.value > 90
    GROUP BY p.region HAVING count(*) > 1 WINDOW HOP(2 s, 500 ms)"""
HOT = {"values": ["a"], "left": 0.1, "right": 0.1}
WINDOW = {"window": 2.0, "slide": 0.5}
OPERATORS: list[dict[str, Any]] = [
    {"id": "join-1", "kind": "join", "inputs": ["pressure", "humidity"], **WINDOW}
    | {"on": "pressure.region = humidity.region and abs(pressure.value - humidity.value) <= 2.5"},
    {"id": "filter-1", "kind": "filter", "input": "join-1", "reads": "pressure"}
    | {"where": "pressure.value > 10"},
    {"id": "filter-2", "kind": "filter", "input": "filter-1", "reads": "humidity"}
    | {"where": "n >= 1 and n <= 3"},
    {"id": "filter-3", "kind": "filter", "input": "filter-2"}
    | {"where": "not (humidity.value + pressure.value > 90)"},
    {"id": "aggregate", "kind": "aggregate", "input": "filter-3", **WINDOW}
    | {"group_by": ["pressure.region"]}
    | {"compute": {"mean": "mean(pressure.value)", "n": "count(*)"}},
    {"id": "having", "kind": "filter", "input": "aggregate", "where": "n > 1"},
]


def document(**query: Any) -> dict[str, Any]:
    return {
        "nova": 1,
        "nodes": [
            {"id": "cloud", "position": [0, 0], "capacity": 2000, "worker": True},
            {"id": "edge", "position": [9, 3], "capacity": 900},
        ],
        "sources": [
            {"id": f"{stream}-{key}", "node": "edge", "stream": stream, "rate": 20, "key": key}
            for stream in ("pressure", "humidity")
            for key in ("a", "b")
        ],
        "streams": [
            {"id": name, "columns": {c.name: c.type for c in STREAMS[name]}, "key": "region"}
            for name in ("pressure", "humidity")
        ],
        "queries": [{"id": "q", "sink": "cloud", **query}],
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def test_sql_and_operators_are_the_same_problem(tmp_path: Path) -> None:
    one = read_problem(write(tmp_path / "sql.yaml", document(sql=SQL)))
    other = read_problem(write(tmp_path / "operators.yaml", document(operators=OPERATORS)))
    assert one.queries == other.queries
    assert one.digest == other.digest
    write_problem(one, tmp_path / "again.yaml")
    assert read_problem(tmp_path / "again.yaml").digest == one.digest
    join, aggregate = one.queries[0].operators[0], one.queries[0].operators[4]
    assert join.match == "key"
    assert (aggregate.by, aggregate.decomposable) == ("key", True)
    assert place(one).operator_names()[:2].tolist() == [
        "q/join-1(pressure-a*humidity-a)",
        "q/join-1(pressure-b*humidity-b)",
    ]


REFUSED = """
|
SELECT
SELECT value
SELECT FROM pressure
DELETE FROM pressure
INSERT INTO pressure VALUES (1)
DROP TABLE pressure
SELECT value FROM pressure; SELECT value FROM humidity
SELECT value FROM nowhere
SELECT nothing FROM pressure
SELECT q.value FROM pressure p
SELECT * FROM pressure
SELECT value, value FROM pressure
SELECT value + 1 FROM pressure
SELECT region + 1 AS x FROM pressure
SELECT value > 1 AS x FROM pressure
SELECT *, value FROM pressure
SELECT sin(value) AS x FROM pressure
SELECT CASE WHEN value > 1 THEN 1 ELSE 2 END AS x FROM pressure
SELECT CAST(value AS int) AS x FROM pressure
SELECT value / 0 AS x FROM pressure
SELECT 1 / value AS x FROM pressure
SELECT DISTINCT value FROM pressure
SELECT value FROM pressure ORDER BY value
SELECT value FROM pressure LIMIT 3
SELECT value FROM pressure WHERE value
SELECT value FROM pressure WHERE value = region
SELECT value FROM pressure WHERE value IS NULL
SELECT value FROM pressure WHERE region LIKE 'a%'
SELECT value FROM pressure WHERE value > (SELECT 1)
SELECT value FROM pressure WHERE count(*) > 1
SELECT value FROM pressure WHERE value > 'a
SELECT value FROM pressure WHERE value >
SELECT value FROM pressure WINDOW TUMBLE(1 s)
SELECT value FROM (SELECT value FROM pressure)
SELECT value FROM pressure UNION SELECT value FROM humidity
WITH x AS (SELECT 1) SELECT value FROM pressure
SELECT count(*) AS n FROM pressure
SELECT count(value) AS n FROM pressure WINDOW TUMBLE(1 s)
SELECT sum(region) AS n FROM pressure WINDOW TUMBLE(1 s)
SELECT median(value) AS n FROM pressure WINDOW TUMBLE(1 s)
SELECT sum(value) / 2 AS n FROM pressure WINDOW TUMBLE(1 s)
SELECT value, count(*) AS n FROM pressure GROUP BY region WINDOW TUMBLE(1 s)
SELECT region FROM pressure GROUP BY region WINDOW TUMBLE(1 s)
SELECT count(*) AS n FROM pressure GROUP BY value > 1 WINDOW TUMBLE(1 s)
SELECT count(*) AS n FROM pressure GROUP BY ROLLUP (region) WINDOW TUMBLE(1 s)
SELECT count(*) AS n FROM pressure HAVING sum(value) > 1 WINDOW TUMBLE(1 s)
SELECT count(*) AS n FROM pressure WINDOW TUMBLE(1 fortnight)
SELECT count(*) AS n FROM pressure WINDOW TUMBLE(1 s) LIMIT 3
SELECT * FROM pressure p JOIN humidity h ON p.region = h.region
SELECT * FROM pressure p LEFT JOIN humidity h ON p.region = h.region WINDOW TUMBLE(1 s)
SELECT * FROM pressure p JOIN humidity h USING (region) WINDOW TUMBLE(1 s)
SELECT * FROM pressure p JOIN humidity h WINDOW TUMBLE(1 s)
SELECT * FROM pressure p JOIN pressure h ON p.region = h.region WINDOW TUMBLE(1 s)
SELECT * FROM pressure p JOIN humidity p ON p.region = 'a' WINDOW TUMBLE(1 s)
SELECT * FROM pressure p JOIN humidity h ON region = 'a' WINDOW TUMBLE(1 s)
SELECT * FROM pressure p NATURAL JOIN humidity h WINDOW TUMBLE(1 s)
"""


@pytest.mark.parametrize("text", REFUSED.strip().splitlines())
def test_what_is_outside_the_language_is_refused_with_its_place(text: str) -> None:
    text = text.strip("|")
    with pytest.raises(ProblemError, match=r"^q: line 1, column \d+: ") as caught:
        read_sql(text, STREAMS, "q")
    column = int(re.findall(r"column (\d+)", str(caught.value))[0])
    assert 1 <= column <= len(text) + 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT p.region,\n  sin(p.value) AS x\nFROM pressure p", "line 2, column 3"),
        ("SELECT value\nFROM nowhere", "line 2, column 6"),
        ("SELECT value FROM pressure\nWHERE value >\n  region", "line 2, column 7"),
        ("SELECT value FROM pressure\n  LIMIT 3", "line 2, column 3"),
    ],
)
def test_the_place_is_where_it_stands(text: str, place: str) -> None:
    with pytest.raises(ProblemError, match=place):
        read_sql(text, STREAMS, "q")


COLUMNS = STREAMS["humidity"]
NUMBERS = st.recursive(
    st.sampled_from(["n", "humidity.value", "3", "2.5", "-1"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda one: f"abs({one})"),
        inner.map(lambda one: f"-({one})"),
    ),
    max_leaves=8,
)
CONDITIONS = st.recursive(
    st.tuples(NUMBERS, st.sampled_from(["=", "<>", "<", ">="]), NUMBERS).map(" ".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda t: f"({t[0]}) {t[1]} ({t[2]})"
        ),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
@settings(max_examples=60, deadline=None)
def test_what_is_written_reads_back_as_it_is(text: str) -> None:
    made = read_condition(text, COLUMNS, "q")
    assert read_condition(made.text, COLUMNS, "q") == made


def test_names_that_are_no_plain_words_are_quoted() -> None:
    columns = [Column("press-1", 'a "b"', "int"), Column("force", "select", "int")]
    made = read_value('"press-1"."a ""b""" + "force"."select"', columns, "q")
    assert read_value(made.text, columns, "q") == made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"on": "value = 1"}, "means several columns"),
        ({"match": "key", "on": "n = 1"}, "does not say that the keys"),
        ({"window": 0.0105}, "expected whole ms"),
        ({"slide": 3.0}, "expected a window, and at most its length"),
        ({"inputs": ["pressure", "pressure"]}, "joined with itself"),
        ({"keys": 5, "on": "pressure.value < humidity.value"}, "two columns of whole numbers or"),
        ({"keys": 5, "hot": [HOT | {"values": [3]}]}, "expected text: a value of each column"),
        ({"keys": 5, "hot": [HOT, HOT]}, "is there twice"),
    ],
)
def test_joins_that_cannot_run_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    operators = [{**OPERATORS[0], **change}]
    with pytest.raises(ProblemError, match=message):
        read_problem(write(tmp_path / "p.yaml", document(operators=operators)))


def test_without_columns_to_group_by_there_is_one_group(tmp_path: Path) -> None:
    # A plan could cut more by groups, and each piece would emit a part of the one there is.
    operators = [{**OPERATORS[4], "input": "pressure", "group_by": [], "groups": 4}]
    with pytest.raises(ProblemError, match=r"groups .*: 4: there is one group without group_by"):
        read_problem(write(tmp_path / "p.yaml", document(operators=operators)))


def test_fields_of_yaml_are_text(tmp_path: Path) -> None:
    path = write(tmp_path / "p.yaml", document(operators=OPERATORS[:1]))
    quoted = path.read_text()
    plain = quoted.replace("'on':", "on:").replace('"on":', "on:")
    assert plain != quoted
    (tmp_path / "plain.yaml").write_text(plain)
    assert read_problem(tmp_path / "plain.yaml").queries == read_problem(path).queries


def test_expressions_need_streams(tmp_path: Path) -> None:
    content = document(operators=OPERATORS)
    del content["streams"]
    with pytest.raises(ProblemError, match="streams are missing"):
        read_problem(write(tmp_path / "p.yaml", content))


def test_places_count_from_one() -> None:
    assert "line 2, column 1:" in str(Text("q", "a\nb").error("wrong", 2))


@pytest.mark.parametrize("name", ["abs", "-"])
def test_nesting_costs_no_more_than_its_length(name: str) -> None:
    columns = STREAMS["humidity"]
    text = read_value(f"{name}(" * 30 + "n" + ")" * 30, columns, "x").text
    assert read_value(text, columns, "x").text == text


@pytest.mark.parametrize("text", ["SELECT * FROM s WHERE s.k = 'window'", 'SELECT "window" FROM s'])
def test_only_the_word_alone_begins_windows(text: str) -> None:
    columns = [Column("s", "k", "text"), Column("s", "window", "int")]
    (operator,) = read_sql(text, {"s": columns}, "x")
    assert operator.id in ("filter-1", "select")
