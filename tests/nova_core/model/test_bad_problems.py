"""Bad problems (DESIGN.md, section 7): one line that names file, field, value and what would do."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_core.errors import NovaError, ProblemError
from nova_core.io import read_problem, write_problem
from nova_core.io.validation import validate_problem
from nova_core.model import JoinMatrix, Problem

GOOD = """nova: 1
nodes:
  - {id: s, position: [0, 0], capacity: 100}
  - {id: a, position: [3, 4], capacity: 50}
  - {id: b, position: [9, 0], capacity: 60}
sources:
  - {id: p, node: a, stream: pressure, rate: 20}
  - {id: h, node: b, stream: humidity, rate: 5}
query:
  operators:
    - {id: tw, left: pressure, right: humidity, sink: s}
matrix:
  - {join: tw, left: p, right: h, output_rate: 2}
"""
FULL = "latency:\n  nodes: [s, a, b]\n  matrix: [[0, 1, 2], [1, 0, 3], [2, 3, 0]]\n"


def message(path: Path) -> str:
    """The one-line error reading the file gives."""
    with pytest.raises(ProblemError) as caught:
        read_problem(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path.parent) in text
    return text.replace(f"{path.parent}/", "")


def refused(tmp_path: Path, text: str, name: str = "p.yaml") -> str:
    (tmp_path / name).write_text(text)
    return message(tmp_path / name)


@pytest.fixture
def good(tmp_path: Path) -> Problem:
    (tmp_path / "good.yaml").write_text(GOOD)
    return read_problem(tmp_path / "good.yaml")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # rates
        ("rate: 20", "rate: .nan", "sources[0].rate: nan is not accepted; a number > 0"),
        ("rate: 20", "rate: -5", "sources[0].rate: -5 is not accepted; a number > 0"),
        ("rate: 20", "rate: 0", "sources[0].rate: 0 is not accepted; a number > 0"),
        (
            "rate: 20",
            "rate: .inf",
            "sources[0].rate of 'p': inf is not a finite number > 0 (tup",
        ),
        ("rate: 20", "rate: many", "sources[0].rate: 'many' is not accepted; a number is"),
        ("output_rate: 2", "output_rate: 0", "matrix[0].output_rate: 0 is not accepted"),
        # capacities
        ("capacity: 50", "capacity: -1", "nodes[1].capacity: -1 is not accepted; a number or one"),
        ("capacity: 50", "capacity: .nan", "nodes[1].capacity: nan is not accepted"),
        ("capacity: 50", "capacity: lots", "'lots' is not accepted; a number or one of unlimited"),
        (", capacity: 50", "", "nodes[1]: field 'capacity' of 'a' is missing"),
        # names
        ("node: a", "node: aa", "sources[0].node: unknown node 'aa'; did you mean 'a'?"),
        ("sink: s", "sink: x", "query.operators[0].sink: unknown node 'x'; accepted are a, b, s"),
        ("left: p,", "left: q,", "matrix[0].left: unknown source 'q'; accepted are h, p"),
        ("join: tw", "join: tv", "matrix[0].join: unknown join 'tv'; accepted are tw"),
        ("id: b", "id: a", "nodes[2].id: 'a' is already used by nodes[1]; names must be unique"),
        ("id: h", "id: p", "sources[1].id: 'p' is already used by sources[0]"),
        ("id: b", "id: 7", "nodes[2].id: 7 is not accepted; text is expected; write it in quotes"),
        ("id: b", "id: no", "nodes[2].id: False is not accepted; text is expected; write it in"),
        ("id: b", "id: ''", "nodes[2].id: '' is not accepted; text of length >= 1 is expected"),
        ("id: b", 'id: "b\\t"', "nodes[2].id: 'b\\t' is no name; a name is not empty and has no"),
        ("id: b", 'id: "b\\0"', "nodes[2].id: 'b\\x00' has a NUL character"),
        # coordinates
        ("[3, 4]", "[3, .inf]", "nodes[1].position of 'a': coordinate 1 is inf, not ms from"),
        ("[3, 4]", "[3, -2e9]", "coordinate 1 is -2000000000.0, not ms from -1e+09 to 1e+09"),
        ("[3, 4]", "[3]", "nodes[1].position: [3.0] has 1 coordinates, other nodes have 2"),
        (" position: [3, 4],", "", "nodes[1].position: left out, but other nodes have one"),
        # query and matrix
        (
            "right: humidity",
            "right: wind",
            "query.operators[0].right of 'tw': no source has stream 'wind'; there are humidity, p",
        ),
        ("  - {join: tw, left: p, right: h, output_rate: 2}\n", "  []\n", None),
        (
            "left: p, right: h",
            "left: h, right: p",
            "matrix[0].left: 'h' belongs to stream 'humidity', but 'tw' joins 'pressure' there",
        ),
        (
            "output_rate: 2}",
            "output_rate: 2}\n  - {join: tw, left: p, right: h}",
            "matrix[1]: tw/p*h is already matrix[0]; each pair may be named once",
        ),
        ("id: tw, ", "id: tw, kind: filter, ", "'filter' is not accepted; one of join is expected"),
        ("id: tw, ", "id: tw, match: some, ", "one of all, key, matrix is expected"),
        ("id: tw, ", "id: tw, selectivity: 0, ", "selectivity: 0 is not accepted; a number > 0"),
        (
            "capacity: 50",
            'capacity: 50, host: "$(touch /tmp/x)"',
            "host: '$(touch /tmp/x)' is not a host name or an IP address",
        ),
        # sinks and workers
        (
            "output_rate: 2",
            "output_rate: 130",
            "nodes[0].capacity of 's': the sink cannot take the output: 130 tuples/s arrive, 100 "
            "fit, 30 too many",
        ),
        # format
        ("nova: 1", "nova: 2", "nova: format version 2; 1 is read here"),
        ("nova: 1", "nova: true", "nova: format version True; 1 is read here"),
        (
            "nova: 1\n",
            "",
            "field 'nova' is missing; a line 'nova: 1', the format's version, is expected",
        ),
        ("rate: 20", "rat: 20", "sources[0]: unknown field 'rat'; did you mean 'rate'?"),
        ("matrix:", "matrx:", "unknown field 'matrx'; did you mean 'matrix'?"),
        ("rate: 20", "rate: 20, rate: 21", "line 7, column 50: field 'rate' is given twice"),
        ("query:", "query: [", "line 11, column 5: "),
        ("nodes:\n", "nodes: {}\nother:\n", "nodes: {} is not accepted; a list is expected"),
    ],
)
def test_bad_field(tmp_path: Path, old: str, new: str, expected: str | None) -> None:
    assert old in GOOD
    if expected is None:  # pairs are derived where none is given: not an error
        (tmp_path / "p.yaml").write_text(GOOD.replace(old, new))
        assert len(read_problem(tmp_path / "p.yaml").matrix) == 1
        return
    assert expected in refused(tmp_path, GOOD.replace(old, new, 1))


def test_no_worker(tmp_path: Path) -> None:
    text = re.sub(r"(capacity: \d+)", r"\1, worker: false", GOOD)
    assert "nodes: no worker; let at least one node host joins" in refused(tmp_path, text)


def test_no_position_at_all(tmp_path: Path) -> None:
    text = re.sub(r" position: \[\d, \d\],", "", GOOD)
    assert "p.yaml: nodes: none has a position; joins are placed by coord" in refused(
        tmp_path, text
    )


def test_self_pair(tmp_path: Path) -> None:
    text = GOOD.replace("right: humidity", "right: pressure").replace("right: h,", "right: p,")
    assert "matrix[0]: pairs 'p' with itself; name two sources" in refused(tmp_path, text)


def test_no_equal_keys(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("matrix:")]
    text = text.replace("rate: 20", "rate: 20, key: r1").replace("rate: 5", "rate: 5, key: r2")
    assert "no source of 'pressure' has the key of one of 'humidity'" in refused(tmp_path, text)
    text = text.replace("sink: s", "sink: s, match: key").replace(", key: r2", "")
    assert "source 'h' has no key, but equal keys are asked for" in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[2, 3, 0]", "[2, .inf, 0]", "latency from 'a' to 'b': inf does not connect them"),
        ("[2, 3, 0]", "[2, -3, 0]", "latency from 'b' to 'a': -3.0 is negative"),
        ("[0, 1, 2]", "[0, .nan, 2]", None),
        ("[1, 0, 3]", "[1, 4, 3]", "latency from 'a' to itself: 4.0 is not 0 ms"),
        ("[s, a, b]", "[s, a, c]", "latency: no measurements of node 'b' (1 of 3 nodes have none)"),
        ("[s, a, b]", "[s, a, a]", "latency: node 'a' is there twice"),
        (", [2, 3, 0]", "", "latency.matrix: 2 rows, 3 are needed"),
        ("[2, 3, 0]", "[2, 3]", "latency.matrix[2]: 2 values, 3 are needed"),
        ("nodes: [s, a, b]", "file: x.csv", "latency: a file and a matrix; give one of them"),
    ],
)
@pytest.mark.filterwarnings("ignore::nova_core.errors.ProblemWarning")
def test_bad_latency(tmp_path: Path, old: str, new: str, expected: str | None) -> None:
    assert old in FULL
    text = GOOD + FULL.replace(old, new)
    if expected is None:  # the other direction was measured
        (tmp_path / "p.yaml").write_text(text)
        assert read_problem(tmp_path / "p.yaml").latency is not None
        return
    assert expected in refused(tmp_path, text)


def test_pair_never_measured_disconnects(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("s,a,b\n0,1,2\n1,0,NA\n2,,0\n")
    text = refused(tmp_path, GOOD + "latency: {file: l.csv}")
    assert text.startswith("l.csv: latency from 'a' to 'b': nan does not connect them; every pair")
    (tmp_path / "l.csv").write_text("s,a,b\n0,1,2\n1,0,far\n2,3,0\n")
    text = refused(tmp_path, GOOD + "latency: {file: l.csv}")
    assert text == "l.csv: row 3, from 'a' to 'b': 'far' is no number of ms"
    (tmp_path / "l.csv.gz").write_bytes(b"\x1f\x8b but no gzip")
    assert "l.csv.gz: not gzip, or cut off" in refused(tmp_path, GOOD + "latency: {file: l.csv.gz}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("links: [{from: a, to: z, budget: 1}]", "links[0].to: unknown node 'z'"),
        ("links: [{from: a, to: a, budget: 1}]", "links[0]: from 'a' to itself"),
        ("links: [{from: a, to: b, budget: -1}]", "links[0].budget: -1 is not accepted"),
        (
            "links: [{from: a, to: b, budget: 1}, {from: a, to: b, budget: 2}]",
            "links[1]: 'a' to 'b' is already there",
        ),
        (
            "latency: {pairs: [{from: a, to: b, ms: 1}, {from: b, to: a, ms: 2}]}",
            "latency.pairs[1]: 'b' to 'a' is already there",
        ),
        ("latency: {pairs: [{from: a, to: b, ms: .inf}]}", "latency.pairs[0].ms: inf is not"),
        ("latency: {nodes: [a]}", "latency: `nodes` and `matrix` belong together"),
        ("tables: {nodes: n.csv}", "tables.nodes: nodes are in the document as well"),
        ("tables: {links: l.csv}", "l.csv: cannot be read: no such file"),
        ("tables: {links: p.yaml}", "a table is a .parquet, .arrow or .csv file, not '.yaml'"),
    ],
)
def test_bad_extra_part(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refused(tmp_path, GOOD + text + "\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "p.yaml: empty; a document is expected"),
        (b" \n\n", "p.yaml: empty; a document is expected"),
        (b"PAR1\x00\x15\xff\xfe", "p.yaml: not UTF-8 text (byte 6); a document is text"),
        (b"a\x00b", "p.yaml: no YAML:"),
        (b"just words", "p.yaml: holds text; a mapping with 'nova: 1' is needed"),
        (b"- 1", "p.yaml: holds a list; a mapping with 'nova: 1' is needed"),
        (b"[" * 5000, "p.yaml: "),
        (b"--- {nova: 1}\n--- {nova: 1}", "p.yaml: line 2, column 1: "),
        (b"nova: 1\nat: 2024-13-45", "p.yaml: "),
        (b"nova: 1\n? {a: 1}\n: 2", "p.yaml: line 2, column 3: found unhashable key"),
    ],
)
def test_unreadable_yaml(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "p.yaml").write_bytes(content)
    assert message(tmp_path / "p.yaml").startswith(expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"nova": 1, "nodes": [', "p.json: line 1, column 23: no JSON: "),
        ('{"nova": 1, "nova": 1}', "p.json: field 'nova' is given twice"),
        ('{"nova": NaN}', "p.json: NaN is no JSON number"),
        ("[" * 100_000, "p.json: nested too deeply for a document"),
        ('{"nova": 1' + "0" * 5000 + "}", "p.json: Exceeds the limit"),
    ],
)
def test_unreadable_json(tmp_path: Path, content: str, expected: str) -> None:
    assert refused(tmp_path, content, "p.json").startswith(expected)


def test_missing_file_wrong_suffix_and_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="cannot be read: No such file"):
        read_problem(tmp_path / "absent.yaml")
    (tmp_path / "p.xml").write_text("<nova/>")
    with pytest.raises(ProblemError, match=r"a \.yaml or \.json document or a directory"):
        read_problem(tmp_path / "p.xml")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProblemError, match=r"empty: holds no problem\.yaml or problem\.json"):
        read_problem(tmp_path / "empty")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("id,x,y,capacity\ns,0,0,100\na,3,4,nan\nb,9,0,1", "n.csv: nodes[1].capacity of 'a': nan"),
        ("id,x,y,capacity\ns,0,0,100\na,3,4,\nb,9,0,1", "n.csv: row 2, column 'capacity': '' is"),
        ("id,x,y,capacity\ns,0,0,100\na,3,4,much\nb,9,0,1", "'much' is no number of tuples/s, nor"),
        ("id,x,y,capacity\ns,0,0,100\na,3,?,1\nb,9,0,1", "n.csv: row 2, column 3: '?' is no numb"),
        ("id,x,y,capacity\ns,0,0,100\na,3,,1\nb,9,0,1", "n.csv: row 2, column 'y': no value"),
        ("id,x,y,capacity\ns,0,0\n", "n.csv: no readable table: CSV parse error: "),
        ("id,x,y,capcity\ns,0,0,100\n", "unknown column 'capcity'; did you mean 'capacity'?"),
        ("id,x,x,capacity\ns,0,0,100\n", "n.csv: column 'x' is there twice"),
        ("id,x,y\ns,0,0\na,1,1\nb,2,2", "n.csv: column 'capacity' is missing; there are id, x, y"),
        ("id,x,z,capacity\ns,0,0,1\n", "n.csv: columns x, z: coordinates are x, y, z or pos"),
        ("id,capacity\ns,1\na,1\nb,1\n", "n.csv: nodes: none has a position"),
        ("id,x,y,capacity\n", "n.csv: nodes: none; at least one worker is needed"),
        ("", "n.csv: empty; a table is expected"),
    ],
)
def test_bad_table(tmp_path: Path, nodes: str, expected: str) -> None:
    (tmp_path / "n.csv").write_text(nodes)
    rest = GOOD[GOOD.index("sources:") :]
    assert expected in refused(tmp_path, f"nova: 1\ntables: {{nodes: n.csv}}\n{rest}")


def test_binary_rubbish_as_tables(tmp_path: Path, good: Problem) -> None:
    for suffix in ("parquet", "arrow"):
        write_problem(good, tmp_path / suffix, suffix)
        file = tmp_path / suffix / f"matrix.{suffix}"
        whole = file.read_bytes()
        for content in (whole[: len(whole) // 2], b"rubbish", b"\x00" * 100):
            file.write_bytes(content)
            assert message(tmp_path / suffix / "problem.yaml").startswith(f"matrix.{suffix}: ")


def test_wrong_columns_in_memory(good: Problem) -> None:
    nodes, matrix = good.nodes, good.matrix
    for wrong, expected in (
        (dataclasses.replace(nodes, capacity=nodes.capacity[:2]), "nodes.capacity: 3 rows"),
        (dataclasses.replace(nodes, capacity=np.ones(3, int)), "a column of float64 is needed"),
        (dataclasses.replace(nodes, position=nodes.position[:, 0]), "(n, d) is needed, not (3,)"),
        (dataclasses.replace(nodes, memory=np.array([1.0, -1, 2])), "nodes[1].memory of 'a': -1.0"),
    ):
        with pytest.raises(ProblemError, match=re.escape(expected)):
            validate_problem(dataclasses.replace(good, nodes=wrong))
    none = JoinMatrix(matrix.join[:0], matrix.left[:0], matrix.right[:0], matrix.output_rate[:0])
    with pytest.raises(ProblemError, match="matrix: no pair; the join matrix must allow at least"):
        validate_problem(dataclasses.replace(good, matrix=none))
    with pytest.raises(ProblemError, match=re.escape("matrix[0].left: 9 is not one of the 2 rows")):
        validate_problem(
            dataclasses.replace(good, matrix=dataclasses.replace(matrix, left=matrix.left + 9))
        )
    lopsided = np.array([[0.0, 1, 2], [1, 0, 3], [2, 4, 0]])
    with pytest.raises(
        ProblemError, match=r"not symmetric: 'a' to 'b' takes 3\.0 ms, back 4\.0 ms"
    ):
        validate_problem(dataclasses.replace(good, latency=lopsided))
    with pytest.raises(ProblemError, match="3 x 3 values are needed"):
        validate_problem(dataclasses.replace(good, latency=np.zeros((3, 2))))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_an_error_or_a_problem(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is done to a document, reading it gives a problem or one line for a person."""
    tokens = re.split(r"(\W+)", GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(tokens) - 1))
        tokens[at] = data.draw(
            st.sampled_from(
                ["", "[]", "{}", "null", "-1", ".nan", "1e999", "'", "&a", "*a", ": ", "x"]
            )
        )
    (tmp_path / "p.yaml").write_text("".join(tokens))
    try:
        assert isinstance(read_problem(tmp_path / "p.yaml"), Problem)
    except NovaError as error:
        assert "\n" not in str(error)
        assert "p.yaml" in str(error)
