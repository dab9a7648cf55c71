"""Costream's tables: cases, predictors, and published values beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nova_research.costream import figure as costream
from nova_research.costream.figure import BEYOND, PUBLISHED, Costream, CostreamParameters, chain
from nova_research.costream.learned.features import HOST
from nova_research.costream.learned.graph import Demand, Graph
from nova_research.figures.base import Run

PREDICTORS = {"network", "flat", "pooled"}


def graph_of(
    flows: list[tuple[int, int]], filters: set[int], hosts: list[list[float]] | None = None
) -> Graph:
    """Five operators, some of them filters, and what flows between them."""
    asks_nothing = [0.0] * (len(HOST) - 4)
    rows = np.array([[*host, *asks_nothing] for host in hosts or []], np.float64)
    kind = np.array([costream.FILTER if n in filters else 0 for n in range(5)])
    ends = np.array(flows, np.int64).reshape(-1, 2)
    return Graph(
        names=[str(n) for n in range(5)],
        kind=kind,
        table=np.zeros((5, 1)),
        operator=np.arange(5),
        demand=Demand((ends[:, 0], ends[:, 1]), np.zeros(len(ends)), np.zeros((2, 5))),
        stage=np.zeros((5, 3), np.int64),
        host=np.zeros(5, np.int64),
        nodes=np.arange(len(hosts or [])),
        hosts=np.log10(1 + rows.reshape(-1, len(HOST))),
        queries=[],
    )


def some_of_the_rack(directory: Path) -> Path:
    """A part of the traces that come with Nova."""
    import pyarrow.parquet as pq

    path = directory / "rack.parquet"
    traces = Path(__file__).parents[1] / "traces" / "rack.parquet"
    pq.write_table(pq.read_table(traces).slice(0, 300), path)
    return path


def told_to(told: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda done, total: told.append((done, total))


def test_filters_one_behind_the_other() -> None:
    line = [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert chain(graph_of(line, {1, 2, 3})) == 3
    assert chain(graph_of(line, {1, 3})) == 1
    assert chain(graph_of(line, set())) == 0
    assert chain(graph_of([(0, 2), (1, 2), (2, 3)], {0, 1, 3})) == 1


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("stronger cpu", [600, 1000, 5, 100], [700, 1000, 5, 100]),
        ("weaker cpu", [200, 1000, 5, 100], [100, 1000, 5, 100]),
        ("stronger latency", [100, 1000, 5, 100], [100, 1000, 2, 100]),
        ("weaker latency", [100, 1000, 40, 100], [100, 1000, 80, 100]),
        ("weaker bandwidth", [100, 1000, 5, 100], [100, 1000, 5, 50]),
        ("stronger memory", [100, 16_778, 5, 100], [100, 25_166, 5, 100]),
    ],
)
def test_hardware_that_is_not_trained_with(
    name: str, inside: list[float], outside: list[float]
) -> None:
    one = next(one for one in BEYOND if one.name == name)
    assert one.trained(graph_of([], set(), [inside]))
    assert not one.trained(graph_of([], set(), [inside, outside]))
    if one.feature in ("latency", "bandwidth"):
        # Nothing leaves the second host.
        silent = [*outside[:2], 0.0, outside[3]]
        assert one.trained(graph_of([], set(), [inside, silent]))


def test_what_each_case_learns_from(tmp_path: Path) -> None:
    parameters = CostreamParameters(traces=150, tests=10, rack=str(some_of_the_rack(tmp_path)))
    every = costream._cases(parameters, Run(None, tmp_path, told_to([])))
    cases = {one.name: one for one in every if one.origin == "simulator"}
    assert {one.name for one in BEYOND} <= cases.keys() <= PUBLISHED.keys()
    base = cases["never seen"].learnt
    for one in BEYOND:
        case = cases[one.name]
        assert 0 < len(case.learnt) < len(base)
        assert all(one.trained(graph) for graph in case.learnt.graphs)
        assert not any(one.trained(graph) for graph in case.tests.graphs)
    filters = cases["2 filters"]
    assert max(chain(graph) for graph in filters.learnt.graphs) == 1
    assert {chain(graph) for graph in filters.tests.graphs} == {2}
    chains = [one for one in every if one.table == "VI" and one.origin == "rack"]
    assert {one.name for one in chains} >= {"2 filters", "3 filters"}
    for case in chains:
        assert {chain(part) for part in case.tests.parts()} == {int(case.name[0])}
        assert set(case.tests.queries) & set(case.learnt.queries) == set()
        assert set(case.learnt.origin) == {"simulator", "rack"}
    # In these two, tests are other queries of the same kind.
    assert cases["between"].learnt is base
    assert set(base.queries) & set(cases["between"].tests.queries) == set()


def test_every_case_has_ours_and_published_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One model is trained, for all cases.
    monkeypatch.setattr(costream, "BEYOND", ())
    monkeypatch.setattr(costream, "LONGEST_CHAIN", 1)
    monkeypatch.setattr(costream, "BENCHMARKS", ("spikes",))
    told: list[tuple[int, int]] = []
    figure = Costream()
    parameters = CostreamParameters(traces=150, tests=16, epochs=1, members=1)
    result = figure.run(parameters, Run(None, tmp_path, told_to(told)))
    cases = {one.case for one in result}
    assert cases == {"never seen", "between", "spikes"}
    assert told[-1] == (3, 3)
    for case in cases:
        rows = [one for one in result if one.case == case]
        ours = {one.predictor for one in rows if one.origin == "simulator"}
        assert ours == PREDICTORS
        assert {one.predictor for one in rows if one.origin == "paper"} == set(PUBLISHED[case])
        assert all(one.traces for one in rows if one.origin == "simulator")
    (table,) = figure.tables(result)
    assert len(table.lines) == len(result)
    assert figure.draw(result).axes
    assert "say nothing about engines" in figure.words(result)[0]
