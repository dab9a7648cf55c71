from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from nova_core.cli import cli
from nova_core.costspace.latency_files import read_measurements
from nova_core.costspace.topology_files import all_pairs, read_topology
from nova_core.errors import ProblemError, ProblemWarning

GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="Latitude" attr.type="double" for="node" id="d1"/>
<key attr.name="Longitude" attr.type="double" for="node" id="d2"/>
<key attr.name="label" attr.type="string" for="node" id="d3"/>
<graph edgedefault="undirected">
<node id="0"><data key="d1">48.1</data><data key="d2">11.6</data><data key="d3">Munich</data></node>
<node id="1"><data key="d1">52.5</data><data key="d2">13.4</data><data key="d3">Berlin</data></node>
<node id="2"><data key="d3">None</data></node>
<edge source="0" target="1"/><edge source="0" target="1"/><edge source="1" target="2"/>
</graph></graphml>"""
NODES = [{"id": 0, "cpu": 4}, {"id": 1}, {"id": 2}]
LINKS = [{"source": 0, "target": 1, "delay": 3.5}, {"source": 1, "target": 2, "delay": 7.1}]
THREE = {("0", "1"): 3.5, ("0", "2"): 10.6, ("1", "2"): 7.1}
SAME = {
    "edges.txt": "0 1 3.5\n1 2 7.1\n",
    "header.txt": "source target delay\n0 1 3.5\n1 2 7.1\n",
    "comma.csv": "# from a simulator\n0,1,3.5,up\n\n1,2,7.1,up\n",
    "links.json": json.dumps({"nodes": NODES, "links": LINKS}),
    "edges.json": json.dumps({"directed": False, "nodes": NODES, "edges": LINKS}),
    "yafs.json": json.dumps(
        {
            "entity": NODES,
            "link": [{"s": 0, "d": 1, "BW": 1, "PR": 3.5}, {"s": 1, "d": 2, "BW": 1, "PR": 7.1}],
        }
    ),
}


def pairs_of(path: Path) -> dict[tuple[str, str], float]:
    found = read_topology(path)
    pairs = all_pairs(found, path)
    columns = pairs.source.tolist(), pairs.target.tolist(), pairs.latency.tolist()
    return {(found.ids[a], found.ids[b]): ms for a, b, ms in zip(*columns, strict=True)}


@pytest.mark.parametrize("name", SAME)
def test_the_same_topology_in_every_form(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(SAME[name], encoding="utf-8-sig")
    assert pairs_of(path) == pytest.approx(THREE)


def test_links_without_latency_count_by_their_places(tmp_path: Path) -> None:
    path = tmp_path / "zoo.graphml"
    path.write_text(GRAPHML)
    with pytest.warns(ProblemWarning, match="1 of 3 nodes have no link with a latency"):
        (pair, ms), *rest = pairs_of(path).items()
    assert (pair, rest) == (("Munich", "Berlin"), [])
    assert 504 < ms * 200 / 1.5 < 507  # km between them
    found = read_topology(path)
    assert (found.from_places, found.unknown) == (2, 1)


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 50)), min_size=1, max_size=20
    )
)
def test_a_pair_is_as_far_as_its_fastest_way(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[int, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("edges") / "edges.txt"
    path.write_text("".join(f"{a} {b} {ms}\n" for a, b, ms in [*edges, (7, 8, 1)]))
    best = np.full((9, 9), np.inf)
    for a, b, ms in [*edges, (7, 8, 1)]:
        best[a, b] = best[b, a] = min(best[a, b], ms)
    for k in range(9):
        best = np.minimum(best, best[:, [k]] + best[[k], :])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProblemWarning)
        found = pairs_of(path)
    expected = {
        frozenset((str(a), str(b))): best[a, b]
        for a in range(9)
        for b in range(a)
        if np.isfinite(best[a, b])
    }
    assert {frozenset(pair): ms for pair, ms in found.items()} == pytest.approx(expected)


BAD = {
    "entities": ("<!DOCTYPE x [<!ENTITY a 'b'>]><graphml/>", "declares entities"),
    "no XML": ("<graphml>", "not XML"),
    "no JSON": ("{", "not JSON"),
    "another object": ('{"a": 1}', "expected an object with nodes and links"),
    "no id": ('{"nodes": [{}], "links": []}', r"nodes\[0\]: field 'id' is missing"),
    "no list": ('{"nodes": 1, "links": []}', "nodes: a list is expected"),
    "no links": ('{"nodes": [], "links": []}', "no links"),
    "another node": (
        '{"nodes": [], "links": [{"source": 1, "target": 2}]}',
        "there is no node '1'",
    ),
    "two words": ("a b\n", "two nodes and the latency of their link"),
    "negative": ("a b -1\n", "delay is -1; 0 or more is expected"),
    "no latency": ("a b x\na b y\n", "no link has a latency"),
    "empty": ("", "empty"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_bad_files_are_refused_in_a_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ProblemError, match=message):
        read_topology(path)


def test_the_command_writes_what_other_commands_read(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text(SAME["edges.txt"])
    out = tmp_path / "out.csv"

    def run(*options: str) -> Result:
        words = ["topology", "import", str(tmp_path / "edges.txt"), "-o", str(out), *options]
        return CliRunner().invoke(cli, words)

    assert run().exit_code == 0
    assert read_measurements(out).pairs().latency.tolist() == pytest.approx([3.5, 10.6, 7.1])
    assert json.loads(run("--links", "--json").stdout)["pairs"] == 2
    refused = run("--delay", "ms")
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert "links have no attribute 'ms'; there are delay" in said
