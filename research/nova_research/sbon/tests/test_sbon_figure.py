"""nova reproduce sbon: the published ordering on generated topologies, and its files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_research.figures.base import Run
from nova_research.sbon.figure import PUBLISHED, Reuse, Sbon, SbonParameters
from nova_research.sbon.queries import (
    aggregations,
    delays,
    same_aggregation,
    usage_by_query,
)
from nova_research.sbon.transit_stub import TransitStubParameters, transit_stub

SMALL = TransitStubParameters(transit_domains=3, transit_nodes=3, stubs=2, stub_nodes=4)


def nova(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="nova")


def test_table_1_on_a_topology_of_the_texts_size() -> None:
    asked = SbonParameters(seeds=1, queries=400, spaces=(), reuse=Reuse((4,), 3))
    result = Sbon().run(asked, Run())
    assert result.nodes == 1550
    rows = {row.algorithm: row for row in result.table}
    usage = [rows[name].usage for name in PUBLISHED]
    assert usage == sorted(usage)
    assert rows["optimal"].usage == 0
    assert rows["relaxation"].usage < 17
    for name, (network, delay) in PUBLISHED.items():
        assert rows[name].usage == pytest.approx(network, abs=10)
        assert rows[name].delay == pytest.approx(delay, abs=15)
    for name in ("consumer", "ip-multicast"):
        assert rows[name].delay == pytest.approx(0, abs=1e-9)
    assert [row.region for row in result.reuse] == ["100 ms", "k = 1", "k = 10"]
    for row in result.reuse:
        assert row.saving > row.saving_unicast > 0
        assert row.least_saving > 0
    # The ten nodes nearest to where an operator wishes to be are all that one has to ask.
    within, nearest, ten = (row.saving for row in result.reuse)
    assert nearest <= ten == pytest.approx(within, abs=1)


def test_usages_and_delays_of_queries_are_the_graphs() -> None:
    made = transit_stub(3, SMALL)
    graph = aggregations(len(made), 6, 3, 2.0, 8.0, 1)
    nodes = graph.pinned()
    nodes[graph.movable] = np.arange(6)
    usage = usage_by_query(graph, nodes, made.latency)
    assert usage.sum() == pytest.approx(graph.network_usage(nodes, made.latency))
    delay, direct = delays(graph, nodes, made.latency)
    for query in range(6):
        *ends, middle, sink = nodes[5 * query : 5 * query + 5].tolist()
        ways = made.latency[ends, middle]
        assert delay[query] == pytest.approx(ways.max() + made.latency[middle, sink])
        assert direct[query] == made.latency[ends, sink].max()
        output = 3 * 2.0 / 8
        assert usage[query] == pytest.approx(2 * ways.sum() + output * made.latency[middle, sink])


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(
        "{figure: sbon, seeds: 2, queries: 20, producers: 2, rate: 2.0, selectivity: 8.0,"
        " topology: {transit_domains: 3, transit_nodes: 3, stubs: 2, stub_nodes: 5},"
        " neighbours: 16, space: {dimensions: 3, height: false}, spaces: [{height: true}],"
        " reuse: {queries: [2, 4], groups: 2, rate: 1.0, output_rate: 0.25, radius: 100.0, k: [3]}}"
    )
    return file


def test_it_is_written_and_told(small: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    common = ("reproduce", "sbon", "--parameters", small, "-o", output)
    result = nova(*common)
    assert result.exit_code == 0, result.output
    for text in ("ip-multicast", "3-d", "2-d + heights", "without multicast", "k = 3"):
        assert text in result.stdout
    names = {f"sbon-{n}.csv" for n in ("table1", "distributions", "spaces", "reuse")}
    names |= {"sbon.json", "sbon.png"}
    assert {file.name for file in output.iterdir()} == names
    assert (output / "sbon.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((output / "sbon.json").read_text())
    with (output / "sbon-table1.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(row["usage"]) for row in table] == [
        row["usage"] for row in numbers["result"]["table"]
    ]
    best = [p["usage"] for p in numbers["result"]["distributions"] if p["algorithm"] == "optimal"]
    assert len(best) == 101
    assert best == sorted(best)
    again = nova(*common, "--json")
    told = json.loads(again.stdout)
    assert set(told.pop("written")) == names
    assert told == numbers


def test_bad_parameters_are_refused(small: Path, tmp_path: Path) -> None:
    text = small.read_text()
    for before, after, said in (
        ("queries: 20", "queries: 0", "queries: 0 is not accepted"),
        ("selectivity: 8.0", "selectivity: 0.0", "selectivity: 0.0 is not"),
        ("stubs: 2", "stub: 2", "topology: unknown field 'stub'; it has transit_domains"),
        ("stubs: 2", "stubs: 2.5", "stubs is 2.5; expected a whole number"),
        ("seeds: 2", "seed: 2", "unknown field 'seed'"),
        ("[2, 4]", "[2, 400]", "reuse: no two regions with stub nodes enough for 400 queries"),
        ("producers: 2", "producers: 999", "999 producers and a consumer do not fit on"),
        ("radius: 100.0", "radius: -1.0", "radius is -1; expected 0 or more"),
        ("k: [3]", "k: [0]", "reuse: k is 0; expected 1 or more"),
    ):
        assert before in text
        small.write_text(text.replace(before, after))
        result = nova("reproduce", "sbon", "--parameters", small, "-o", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert said in result.stderr
        assert result.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_groups_of_queries_need_two_regions() -> None:
    made = transit_stub(
        0, TransitStubParameters(transit_domains=1, transit_nodes=2, stubs=2, stub_nodes=4)
    )
    with pytest.raises(NovaError, match="no two regions"):
        same_aggregation(made, 2, 1.0, 0.25, [0])
