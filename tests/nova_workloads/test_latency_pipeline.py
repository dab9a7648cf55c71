"""The latency pipeline: RIPE Atlas results and matrices to one latency per pair."""

from __future__ import annotations

import gzip
import json
import math
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from latency_series import filtered_series

from nova_core.costspace.latency_files import read_measurements
from nova_core.errors import NovaError, ProblemWarning
from nova_workloads.latencies.pipeline import Filter, filter_latencies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def result(probe: int, target: str, time: int, rtts: list[float], **changes: Any) -> dict[str, Any]:
    """A ping result as the documentation of firmware 5080 has it."""
    replies = [{"rtt": rtt} for rtt in rtts]
    found: dict[str, Any] = {
        "fw": 5080,
        "mver": "2.6.2",
        "lts": 17,
        "dst_name": f"{target}.anchors.atlas.ripe.net",
        "af": 4,
        "dst_addr": target,
        "src_addr": "10.0.0.4",
        "proto": "ICMP",
        "ttl": 55,
        "size": 32,
        "result": replies + [{"x": "*"}] * (3 - len(rtts)),
        "dup": 0,
        "rcvd": len(rtts),
        "sent": 3,
        "min": min(rtts, default=-1),
        "max": max(rtts, default=-1),
        "avg": sum(rtts) / len(rtts) if rtts else -1,
        "msm_id": 1026355,
        "prb_id": probe,
        "timestamp": time,
        "msm_name": "Ping",
        "from": f"193.0.0.{probe}",
        "type": "ping",
        "step": 240,
        "stored_timestamp": time + 60,
    }
    return {name: value for name, value in (found | changes).items() if value is not None}


def mesh(rounds: int) -> tuple[list[dict[str, Any]], dict[tuple[str, str], list[float]]]:
    """Anchors 1 to 4 that ping each other and an outsider, and every direction's samples."""
    random = np.random.default_rng(4)
    results: list[dict[str, Any]] = []
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    for time in range(rounds):
        for probe in (1, 2, 3, 4):
            for other in (1, 2, 3, 4, 99):
                base = 10 * abs(probe - other) + probe / 10
                rtts = np.round(base + random.exponential(40, 3), 3).tolist()
                address = f"193.0.0.{other}" if other != 99 else "198.51.100.7"
                results.append(result(probe, address, 1_700_000_000 + time * 240, rtts))
                if other != probe:
                    name = str(other) if other != 99 else address
                    samples[str(probe), name].append(min(rtts))
    return results, samples


@pytest.mark.e2e
def test_results_of_an_anchoring_mesh(spark: SparkSession, tmp_path: Path) -> None:
    results, samples = mesh(25)
    good = len(results)
    results += [
        result(1, "193.0.0.2", 1_700_009_000, []),
        result(1, "193.0.0.2", 1_700_009_000, [0.0]),
        result(1, "193.0.0.2", 1_700_009_000, [99_999.0]),
        result(1, "193.0.0.2", 1_700_009_000, [5.0], type="traceroute"),
        result(1, "193.0.0.2", 1_700_009_000, [5.0], prb_id=None),
        result(1, "193.0.0.2", 1_700_009_000, [5.0], timestamp=None),
    ]
    # What firmware before 4460 called differently, later than all others.
    old = {"fw": 4430, "type": None, "dst_addr": None, "dst_name": None, "src_addr": None}
    old |= {"addr": "193.0.0.4", "name": "four", "srcaddr": "193.0.0.3", "mode": "ICMP4"}
    results.append(result(3, "", 1_700_010_000, [7.5], **old))
    samples["3", "4"].append(7.5)
    np.random.default_rng(0).shuffle(results)  # type: ignore[arg-type]
    (tmp_path / "in").mkdir()
    half = len(results) // 2
    lines = [json.dumps(found) for found in results[:half]]
    torn = "\n".join([*lines, lines[0][:80], "nonsense", ""])
    with gzip.open(tmp_path / "in" / "ripe-atlas-1.jsonl.gz", "wt") as file:
        file.write(torn)
    # As the interface answers: one array.
    (tmp_path / "in" / "ripe-atlas-2.json").write_text(json.dumps(results[half:]))
    (tmp_path / "in" / "other.json").write_text('{"type": "FeatureCollection"}\n[]\n')
    (tmp_path / "in" / "cut.json.gz").write_bytes(gzip.compress(torn.encode())[:-50])
    (tmp_path / "in" / "empty.json").touch()
    output = tmp_path / "pairs.parquet"
    report = filter_latencies(spark, [tmp_path / "in"], output, Filter())

    bad = {Path(path).name: problem for path, problem in report["files"]["problems"].items()}
    assert set(bad) == {"other.json", "cut.json.gz", "empty.json"}
    assert bad["other.json"] == "no ping result of RIPE Atlas in 1 lines"
    assert bad["empty.json"] == "empty"
    assert bad["cut.json.gz"].startswith("not gzip, or cut off")
    assert report["samples"] == {
        "in": good + 7 + 2,
        "out": sum(len(values) for values in samples.values()),
        "dropped": {"malformed": 4, "not_ping": 1, "no_reply": 1, "impossible": 2, "self": 100},
    }
    latency = {
        ends: sorted(values[-10:])[math.ceil(0.2 * len(values[-10:])) - 1]
        for ends, values in samples.items()
    }
    for ends, values in samples.items():
        own = filtered_series(np.array([values]))
        assert own[0, -1] == latency[ends]
    found = {(row["source"], row["target"]): row for row in pq.read_table(output).to_pylist()}
    names = ["1", "2", "3", "4", "198.51.100.7"]
    expected = {}
    for one in names:
        for other in names:
            if one < other:
                both = [latency[e] for e in ((one, other), (other, one)) if e in latency]
                expected[one, other] = sum(both) / len(both)
    assert {ends: row["rtt"] for ends, row in found.items()} == pytest.approx(expected)
    assert found["1", "2"]["directions"] == 2
    assert found["1", "198.51.100.7"]["directions"] == 1
    late = sum(sum(v > 3 * latency[ends] for v in values) for ends, values in samples.items())
    assert report["outliers"]["samples"] == late > 0
    assert report["coverage"]["nodes"] == 5
    assert report["pairs"]["count"] == report["coverage"]["pairs_possible"] == 10
    assert report["pairs"]["both_directions"] == 6
    with pytest.warns(ProblemWarning, match="round trips; half of each counts"):
        ways = read_measurements(output).pairs().latency
    assert ways.sum() == pytest.approx(sum(expected.values()) / 2)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    with pytest.raises(NovaError, match=r"cut\.json\.gz: not gzip, or cut off.* \(and 2 more\)"):
        filter_latencies(spark, [tmp_path / "in"], output, Filter(on_bad_file="fail"))


def test_matrices_are_rounds(spark: SparkSession, tmp_path: Path) -> None:
    for round_, ab in enumerate((30, 10, 20)):
        (tmp_path / f"hour{round_}.csv").write_text(f"a,b,c\n0,{ab},5\n{ab + 2},0,NA\n7,-1,0\n")
    (tmp_path / "torn.csv").write_text("a,b\n0,1\n1\n")
    (tmp_path / "twice.csv").write_text("a,a\n0,1\n1,0\n")
    (tmp_path / "short.csv").write_text("a,b,c\n0,1,2\n")
    output = tmp_path / "pairs.parquet"
    report = filter_latencies(spark, [tmp_path], output, Filter(window=2, percentile=50))
    assert {Path(path).name: why for path, why in report["files"]["problems"].items()} == {
        "torn.csv": "row 3 (b): 1 values, not 2",
        "twice.csv": "a name is there twice",
        "short.csv": "3 node names but 1 rows of latencies; a row per node is needed",
    }
    rows = pq.read_table(output).to_pylist()
    assert [(row["source"], row["target"], row["rtt"]) for row in rows] == [
        ("a", "b", 11.0),  # of the last two rounds the lower one: 10 there, 12 back
        ("a", "c", 6.0),
    ]
    assert report["samples"]["dropped"]["no_reply"] == 6
    assert report["coverage"]["share"] == pytest.approx(2 / 3)


def test_tables_as_people_have_them_mean_what_they_mean_to_topology(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = {
        "excel": "berlin;munich;paris\r\n0;15,1;25,0\r\n14,9;0;30,2\r\n25,2;30,4;0\r\n",
        "bom": "\ufeffberlin,munich,paris\r\n0,15.1,25.0\r\n*,0,30.2\r\n25.2,-1,0\r\n",
        "quoted": '"Frankfurt, DE","Paris, FR","Oslo, NO"\n0,9.1,30\n9.2,0,35\n30,35,0\n',
        "zero": "a,b,c\n0,0,25\n0,0,30\n25,30,0\n",
        "units": "a,b,c\n0 ms,25.3 ms,70.9 ms\n25.1 ms,0 ms,92.0 ms\n71.2 ms,92.5 ms,0 ms\n",
    }
    for name, text in texts.items():
        path, output = tmp_path / f"{name}.csv", tmp_path / f"{name}.parquet"
        path.write_bytes(text.encode())
        filter_latencies(spark, [path], output, Filter())
        found = []
        for file in (path, output):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ProblemWarning)
                measured = read_measurements(file, "round-trip")
            pairs = measured.pairs()
            columns = measured.ids[pairs.source], measured.ids[pairs.target], pairs.latency
            found.append({frozenset((a, b)): ms for a, b, ms in zip(*columns, strict=True)})
        assert found[0] == pytest.approx(found[1])
        assert found[0]


def test_results_printed_for_people_are_read(spark: SparkSession, tmp_path: Path) -> None:
    results = [
        result(1, "193.0.0.2", 1_700_000_000, [5.0]),
        result(2, "193.0.0.1", 1_700_000_000, [7.0]),
    ]
    (tmp_path / "pretty.json").write_text(json.dumps(results, indent=2))
    with gzip.open(tmp_path / "one.json.gz", "wt") as file:
        json.dump(result(3, "193.0.0.2", 1_700_000_000, [9.0]), file, indent=2)
    (tmp_path / "lines.json").write_text(json.dumps(result(4, "193.0.0.2", 1, [4.0])) + "\n")
    output = tmp_path / "out" / "pairs.parquet"
    output.parent.mkdir()
    report = filter_latencies(spark, [tmp_path], output, Filter())
    assert report["files"]["problems"] == {}
    rows = {(row["source"], row["target"]): row["rtt"] for row in pq.read_table(output).to_pylist()}
    assert rows == {("1", "2"): 6.0, ("2", "3"): 9.0, ("2", "4"): 4.0}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "no latencies; .json or .jsonl files"),
        ({"a.csv": "a,b\n0,\n,0\n"}, "no sample is left: 4 in, 2 no_reply, 2 self"),
        ({"a.csv": "a,b\n0,x\n1,0\n"}, "a.csv: row 2, from 'a' to 'b': 'x' is no number of ms$"),
        ({"a.json": "{}\n", "b.csv": "a\n"}, r"a.json: no ping result .* \(and 1 more\)"),
    ],
)
def test_nothing_to_filter(
    spark: SparkSession, tmp_path: Path, content: dict[str, str], message: str
) -> None:
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(NovaError, match=message):
        filter_latencies(spark, [tmp_path], tmp_path / "pairs.parquet", Filter())
    assert {path.name for path in tmp_path.iterdir()} == set(content)


def test_the_output_is_parquet(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NovaError, match=r"the pairs are written as .parquet, not '.csv'"):
        filter_latencies(spark, [tmp_path], tmp_path / "pairs.csv", Filter())


@pytest.mark.e2e
@pytest.mark.data
def test_measured_matrices(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    files = sorted((shared_data / "latency").glob("ripe-atlas-631-hour*.csv.gz"))
    output = tmp_path / "pairs.parquet"
    report = filter_latencies(spark, files, output, Filter())
    rounds = np.stack([pd.read_csv(file).to_numpy(np.float64) for file in files], axis=-1)
    rounds[rounds <= 0] = np.nan
    latency = filtered_series(rounds)[..., -1]
    names = pd.read_csv(files[0], nrows=0).columns.to_numpy()
    table = pq.read_table(output)
    place = {name: index for index, name in enumerate(names)}
    source, target = (
        np.array([place[name] for name in table[end].to_pylist()]) for end in ("source", "target")
    )
    both = np.nanmean([latency[source, target], latency[target, source]], axis=0)
    assert (table["rtt"].to_numpy() == both).all()
    known = ~np.isnan(latency)
    np.fill_diagonal(known, False)
    assert len(table) == np.triu(known | known.T).sum() == report["pairs"]["count"]
    assert report["coverage"]["nodes"] == len(names)
