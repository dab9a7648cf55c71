from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_core.io.files import read_problem, write_plan
from nova_core.model.partitioner import partition_of
from nova_core.strategies.base import place
from nova_workloads.debs import Debs
from nova_workloads.schedule import Schedule, all_tuples
from nova_workloads.streams import Stream, synthetic
from nova_workloads.tuple_text import TupleText, partitions_of


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["workload", "replay", *arguments])


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_lines_are_csv_and_json(tmp_path: Path) -> None:
    streams = [Stream('a,"b"', "r", "pressure", np.array([5]), np.array([1.5]))]
    block = all_tuples(Schedule(), streams)
    text = TupleText(streams, "csv")
    sent = text.header.encode() + text.stamped(text.lines(block), 99)
    assert rows_of(sent.decode()) == [
        {"sensor": 'a,"b"', "region": "r", "stream": "pressure", "sequence": "0", "time_ms": "5",
         "value": "1.5", "emit_us": "99"}
    ]  # fmt: skip
    text = TupleText(streams, "json", {'a,"b"-pressure': [np.array([1.0])]})
    assert json.loads(text.stamped(text.lines(block), 99)) == {
        "sensor": 'a,"b"', "region": "r", "stream": "pressure", "sequence": 0, "time_ms": 5,
        "value": 1.5, "partition": "0", "emit_us": 99,
    }  # fmt: skip
    assert text.header == ""


def test_partitions_are_those_of_the_plan(tmp_path: Path) -> None:
    problem_path, plan_path = tmp_path / "problem.yaml", tmp_path / "plan.json"
    # Fog nodes too small for a whole join: both inputs are cut.
    problem_path.write_text(Debs().text().replace("capacity: 2500", "capacity: 1300"))
    problem = read_problem(problem_path)
    plan = place(problem, on_full="spread")
    write_plan(plan, plan_path)
    assert plan.partitions.count.max() > 1
    out = tmp_path / "out.csv"
    done = run(
        "--synthetic", "8", "--rate", "1000", "--count", "3000", "--unpaced", "--to", str(out),
        "--plan", str(plan_path), "--problem", str(problem_path),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = rows_of(out.read_text())
    for pair in range(4):
        for side, name in enumerate(("pressure", "humidity")):
            mine = [r for r in rows if r["sensor"] == f"{name}-{pair + 1}"]
            rates = plan.partitions.rates(pair, side)
            expected = partition_of(np.arange(3000), rates)
            assert [int(r["partition"]) for r in mine] == expected.tolist()
            share = np.bincount(expected, minlength=len(rates)) / 3000
            np.testing.assert_allclose(share, rates / rates.sum(), atol=0.002)
    with pytest.raises(NovaError, match=r"no source of problem .* is called 'pressure-5-pressure'"):
        partitions_of(plan, synthetic(10))


def test_a_source_in_two_joins_has_a_partition_in_each(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    text = Debs(regions=1, nodes=6).text().replace("capacity: 1200", "capacity: 2400")
    extra = "- {id: humidity-2, node: fog-1, stream: humidity, rate: 1000, key: region-1}\n"
    path.write_text(text + extra)
    plan = place(read_problem(path))
    streams = [s for s in synthetic(4, regions=1) if s.sensor != "pressure-2"]
    found = partitions_of(plan, streams)
    assert {name: len(rates) for name, rates in found.items()} == {
        "pressure-1-pressure": 2, "humidity-1-humidity": 1, "humidity-2-humidity": 1
    }  # fmt: skip
    rates = [np.array([1.0, 3.0]), np.array([1.0, 1.0, 1.0])]
    lines = TupleText(streams[:1], "csv", {"pressure-1-pressure": rates}).lines(
        all_tuples(Schedule(rate=1.0, count=5), streams[:1])
    )
    wanted = zip(*(partition_of(np.arange(5), r).tolist() for r in rates), strict=True)
    assert [line.split(",")[6] for line in lines] == [f"{a}|{b}" for a, b in wanted]
