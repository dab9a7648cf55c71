"""A valid file of every kind that Nova reads: what the fuzzer changes.

What other commands write is written by them, so that it stays what they write.
"""

from __future__ import annotations

import gzip
import json
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).resolve().parents[2]

PROBLEM: dict[str, Any] = {
    "nova": 1,
    "name": "rooms",
    "nodes": [
        {"id": "hall", "capacity": 5, "position": [0, 0], "height": 1, "cost": 1},
        {"id": "attic", "capacity": 5, "position": [4, 9], "height": 1, "tags": ["roof"]},
        {"id": "small", "capacity": 30, "position": [3, 3], "height": 1, "host": "10.0.0.3"},
        {"id": "other", "capacity": 30, "position": [4, 2], "height": 1, "penalty": 1},
        {"id": "cloud", "capacity": "unlimited", "position": [60, 40], "height": 1, "worker": True},
        {"id": "desk", "capacity": 100, "position": [9, 1], "height": 1, "worker": False},
    ],
    "sources": [
        {"id": "t1", "node": "hall", "stream": "T", "rate": 20, "key": "n", "tuple_bytes": 100},
        {"id": "h1", "node": "attic", "stream": "H", "rate": 20, "key": "n", "tuple_bytes": 100},
        {"id": "t2", "node": "attic", "stream": "T", "rate": 4, "key": "s", "tuple_bytes": 100},
        {"id": "h2", "node": "hall", "stream": "H", "rate": 4, "key": "s", "tuple_bytes": 100},
    ],
    "query": {
        "operators": [{"id": "air", "left": "T", "right": "H", "sink": "desk", "selectivity": 0.5}]
    },
    "links": [{"from": "small", "to": "desk", "budget": 500}],
}
# For the service.
FIELD = {**PROBLEM, "name": "field"}
QUERIES: dict[str, Any] = {
    **{name: PROBLEM[name] for name in ("nova", "nodes", "sources", "links")},
    "name": "questions",
    "queries": [
        {
            "id": "mean",
            "sink": "desk",
            "operators": [
                {"kind": "filter", "id": "warm", "input": "T", "selectivity": 0.5},
                {
                    "kind": "join",
                    "id": "air",
                    "inputs": ["warm", "H"],
                    "selectivity": 0.5,
                    "window": 10,
                },
                {"kind": "project", "id": "short", "input": "air"},
                {"kind": "aggregate", "id": "means", "input": "short", "window": 10, "groups": 2},
            ],
        },
        {
            "id": "all",
            "sink": "cloud",
            "operators": [{"kind": "join", "id": "both", "inputs": ["T", "H"]}],
        },
    ],
}
EVENTS: Sequence[dict[str, Any]] = (
    {"event": "change-rate", "source": "t2", "rate": 5},
    {"event": "add-worker", "node": {"id": "new", "capacity": 50, "position": [1, 1], "height": 1}},
    {
        "event": "add-worker",
        "node": {"id": "far", "capacity": 5},
        "latency": {"small": 3.5, "other": 4, "desk": 9},
    },
    {
        "event": "add-source",
        "source": {"id": "t3", "node": "new", "stream": "T", "rate": 1, "key": "s"},
        "joins": [{"operator": "air", "with": "h2", "output_rate": 1}],
    },
    {"event": "change-capacity", "node": "other", "capacity": 40},
    {"event": "move-node", "node": "small", "position": [3, 4]},
    {"event": "change-link", "from": "small", "to": "desk", "budget": 600},
    {"event": "move-sink", "operator": "air", "node": "cloud"},
    {
        "event": "add-operator",
        "operator": {
            "id": "more",
            "left": "T",
            "right": "H",
            "sink": "cloud",
            "requires": {"memory": 0},
        },
        "pairs": [{"left": "t2", "right": "h2", "output_rate": 1}],
    },
    {"event": "add-pair", "operator": "more", "left": "t3", "right": "h2", "output_rate": 1},
    {"event": "remove-pair", "operator": "more", "left": "t2", "right": "h2"},
    {"event": "remove-operator", "operator": "more"},
    {
        "event": "batch",
        "events": [
            {"event": "remove-source", "source": "t3"},
            {"event": "remove-worker", "node": "new"},
        ],
    },
    {"event": "pin", "operator": "air"},
    {"event": "rebalance", "moves": 2},
)
POLICY = {
    "gain": 0.5, "gain_share": 0.1, "state_bytes": {"air": 1000}, "gain_per_byte": 0.001,
    "cooldown": 1, "pinned": [], "overload": True,
}  # fmt: skip
# As Flink's plug-in sends a job.
JOB: dict[str, Any] = {
    "nova": 1,
    "name": "job",
    "nodes": PROBLEM["nodes"],
    "sources": [
        {"id": "pressure", "node": "hall", "stream": "pressure", "rate": 20.0},
        {"id": "humidity", "node": "attic", "stream": "humidity", "rate": 10.0},
        {"id": "humidity-2", "node": "hall", "stream": "humidity", "rate": 10.0},
    ],
    "queries": [
        {
            "id": "sink",
            "sink": "desk",
            "operators": [
                {"id": "map", "kind": "project", "input": "pressure", "selectivity": 2.0},
                {"id": "join", "kind": "join", "inputs": ["map", "humidity"], "match": "all",
                 "selectivity": 0.25},
                {"id": "mean", "kind": "aggregate", "input": "join", "output_rate": 2.5},
            ],
        },
        {
            "id": "print",
            "sink": "cloud",
            "operators": [{"id": "print~", "kind": "project", "input": "pressure"}],
        },
    ],
}  # fmt: skip
# What every strategy of queries takes: a tree without aggregates.
_JOINED = {**JOB["queries"][0], "operators": JOB["queries"][0]["operators"][:2]}
TREE = {**JOB, "sources": JOB["sources"][:2], "queries": [_JOINED]}
INVENTORY = {
    "inventory": 1,
    "name": "fuzzed",
    "virtual": True,
    "defaults": {"cpu": 0.2, "memory": "512 MiB"},
    "hosts": [
        {"name": "sink", "role": "sink", "cpu": 0.4},
        *({"name": f"source{i}", "role": "source"} for i in (1, 2, 3, 4)),
        {"name": "worker1", "role": "worker"},
        {"name": "worker2", "role": "worker"},
    ],
    "network": {"generate": {"seed": 8}, "bandwidth_mbit": 100},
    "stress": {"roles": ["source"], "cpu_percent": 100, "memory_percent": 50},
}
DISTURBANCES: Sequence[dict[str, Any]] = (
    {"at": 1, "what": "load", "host": "worker1", "for": 3},
    {"at": 2.5, "what": "cpu", "host": "worker1", "cores": 0.1, "for": 3},
    {"at": 3, "what": "rtt", "host": "worker1", "to": "sink", "ms": 90, "for": 3},
)
MORE_DISTURBANCES = (
    *DISTURBANCES,
    {"at": 4, "what": "cut", "host": "worker1", "for": 2},
    {"at": 5, "what": "rate", "host": "source1", "times": 2},
    {"at": 6, "what": "kill", "host": "worker2", "for": 1},
    {"at": 8, "what": "hang", "host": "worker2", "for": 1},
    {"at": 9, "what": "add", "host": "worker2"},
)
# Nobody listens there; the campaign starts an sshd for each.
HOSTS = [
    {"name": "a", "role": "sink", "address": "127.0.0.1", "port": 9},
    {"name": "b", "role": "source", "address": "127.0.0.2", "port": 9},
    {"name": "c", "role": "source", "address": "127.0.0.3", "port": 9},
]
EXPERIMENT = {
    "experiment": 1,
    "name": "fuzzed",
    "workload": {"kind": "debs", "regions": 2, "matches": 1},
    "inventory": "inventory.yaml",
    "engine": "flink",
    "strategies": ["nova", "sink"],
    "windows_ms": [100],
    "rates": [1000],
    "stress": False,
    "duration_s": 14,
    "warm_up_s": 7,
    "drain_s": 4,
    "capacity": {"seconds": 6, "warm_up_s": 6},
    "disturbances": list(DISTURBANCES),
    "seed": 2021,
}
JOBS = {
    "nova_jobs": 1,
    "jobs": {
        "field": {
            "problem": "problem.yaml",
            "plan": "plan.json",
            "inventory": "inventory.yaml",
            "engine": "storm",
            "cooldown": 5,
            "miss-after": 7.5,
        }
    },
}
REGIONS = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"name": "south"},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[10, 47], [13, 47], [13, 49], [10, 49], [10, 47]]],
            },
        }
    ],
}
ATLAS = [
    {"type": "ping", "prb_id": 1, "dst_addr": "10.0.0.2", "timestamp": 1735689600, "avg": 12.5,
     "min": 12.0, "max": 13, "sent": 3, "rcvd": 3, "result": [{"rtt": 12.5}, {"rtt": 12.0}],
     "msm_id": 7, "from": "10.0.0.1", "src_addr": "10.0.0.1"},
]  # fmt: skip
GRAPHML = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<key attr.name="delay" for="edge" id="d"/><graph edgedefault="undirected">'
    '<node id="a"/><node id="b"/><edge source="a" target="b"><data key="d">3.5</data></edge>'
    "</graph></graphml>"
)
TOPOLOGY = """id,capacity,x,y,lat,lon
cloud,unlimited,0,0,,
munich,100,3,1,48.14,11.58
berlin,50.5,1,4,52.52,13.40
"""
SENSOR = "sensor_id;sensor_type;location;lat;lon;timestamp;"
PRESSURES = (
    f"{SENSOR}pressure;altitude;pressure_sealevel;temperature\n"
    "141;BMP280;62;48.806;11.158;2025-01-01T00:00:32;97010.11;;;5.91\n"
    "141;BMP280;62;48.806;11.158;2025-01-01T00:02:57;97013.50;;;5.90\n"
)
HUMIDITIES = (
    f"{SENSOR}temperature;humidity\n"
    "142;DHT22;62;48.806;11.158;2025-01-01T00:00:30;5.1;61.2\n"
    "142;DHT22;62;48.806;11.158;2025-01-01T00:02:58;5.0;61.3\n"
)
FIGURES: dict[str, Any] = {
    "fig6": {"figure": "fig6", "instance": "sim1000", "capacities": ["capacity_0"],
             "nodes": 12, "seed": 0, "seeds": 1},
    "fig10": {"figure": "fig10", "nodes": [12], "heterogeneity": 1.0, "seed": 0},
}  # fmt: skip
INSTANCE_NODES = """node,x,y,role,capacity_0,capacity_1
0,1.5,2,sink,100,90
1,0,0,source,50,60
2,3,4,source,70,80
3,1,1,worker,90,100
"""
INSTANCE_JOINS = "left,right,left_rate,right_rate,output_rate\n1,2,10,20,3\n2,1,5,15,2\n"


def write_material(place: Path, nova: Callable[..., None]) -> None:
    """Write a valid file of every kind into an empty directory, the working directory.

    Args:
        place: the directory.
        nova: runs a command with these arguments and raises where it fails.
    """
    _problems(place)
    for output in ("plan.json", "plan.yaml", "plan-tables"):
        nova("plan", "problem.yaml", "--sigma", "0.5", "-o", output, "--no-baselines")
    nova("plan", "queries.yaml", "-o", "query-plan.json", "--no-baselines")
    _learned(place, nova)
    nova("live", "problem.yaml", "plan.json", "--events", "two.jsonl", "--journal", "journal")
    nova("translate", "plan.json", "-p", "problem.yaml", "--engine", "flink", "-o", "flink")
    shutil.copy(place / "flink" / "job" / "sources.json", place / "sources.json")
    _topologies(place)
    nova("topology", "embed", "matrix.csv", "-o", "space.csv")
    _sensors(place)
    reference = ("workload", "reference", "readings.csv", "--window", "10", "--rate", "10")
    for suffix in ("csv", "parquet"):
        nova(*reference, "-o", f"results.{suffix}", "--count", "20")
    rows = pq.read_table(place / "results.parquet").to_pylist()
    (place / "results.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    nova("workload", "debs", "-o", "debs.yaml")
    nova("plan", "debs.yaml", "-o", "debs-plan.json", "--no-baselines")
    _experiments(place)
    # What this imports, children need not.
    nova("plot", "problem.yaml", "-o", "problem.svg")
    _web(place / "web")
    _at_scale(place, nova)
    _service(place)
    _requests(place)


def _learned(place: Path, nova: Callable[..., None]) -> None:
    """A model of random parameters, and traces of a plan: one to train with, one for tests."""
    from nova_core.io.files import read_problem
    from nova_core.io.problem_writing import document_text
    from nova_research.costream.learned.model import write_model
    from nova_research.costream.tests.learned_models import random_model
    from nova_research.costream.training.traces import Trace, table_of, write_traces

    write_model(random_model(hidden=4), place / "model.npz")
    _yaml(place / "one-query.yaml", {**QUERIES, "queries": QUERIES["queries"][:1]})
    nova("plan", "one-query.yaml", "-o", "one-plan.json", "--no-baselines")
    trace = Trace(
        id="one", query="mean", structure="two-way-agg", operators=None, origin="rack",
        problem=document_text(read_problem(place / "one-query.yaml"), ".json"),
        plan=(place / "one-plan.json").read_text(), engine="flink", engine_version="2",
        nova_version="0", made="2025-01-01T00:00:00Z", seed=0, batch=0, repeat_of=None,
        duration_s=6.0, success=True, back_pressure=False, throughput=2.0, e2e_latency_ms=90.0,
        processing_latency_ms=80.0, results=12, window_s=10.0,
    )  # fmt: skip
    other = replace(trace, id="two", query="two", throughput=3.0, results=18)
    write_traces(place / "traces.parquet", table_of([trace, other]))


def _at_scale(place: Path, nova: Callable[..., None]) -> None:
    """Tables that Spark places, as `nova scale generate` writes them, and a plan of them."""
    from nova_core.io.files import read_problem, write_problem
    from nova_core.model.problem import Links

    for name, source in (("scale", "problem.yaml"), ("scale-pairs", "pairs.yaml")):
        whole = read_problem(place / source)
        write_problem(replace(whole, links=Links.none()), place / name)
    nova("plan", "scale", "--no-baselines", "-o", "scale-plan")
    nodes = place / "scale-pairs" / "nodes.parquet"
    pq.write_table(pq.read_table(nodes).select(["id", "capacity"]), nodes)


def _problems(place: Path) -> None:
    _yaml(place / "problem.yaml", PROBLEM)
    for name, document in (("problem", PROBLEM), ("field", FIELD), ("job", JOB), ("tree", TREE)):
        _json(place / f"{name}.json", document)
    bare = [{k: v for k, v in row.items() if k not in ("position", "height")}
            for row in PROBLEM["nodes"]]  # fmt: skip
    names = [row["id"] for row in bare]
    latency = {"nodes": names, "matrix": _matrix(len(names))}
    _yaml(place / "measured.yaml", {**PROBLEM, "nodes": bare, "latency": latency})
    pairs = [{"from": a, "to": b, "ms": 5 + i} for i, (a, b) in enumerate(combinations(names, 2))]
    _yaml(place / "pairs.yaml", {**PROBLEM, "nodes": bare, "latency": {"pairs": pairs}})
    _yaml(place / "queries.yaml", QUERIES)
    for name, events in (("events", EVENTS), ("two", EVENTS[:2])):
        (place / f"{name}.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in events))
    # The same problem as tables, of the three kinds.
    tables = place / "tables"
    tables.mkdir()
    parts = {"nodes": "nodes.parquet", "sources": "sources.csv", "links": "links.arrow"}
    whole = {"nova": 1, "name": "tables", "query": PROBLEM["query"], "tables": parts}
    _yaml(tables / "problem.yaml", whole)
    rows = [
        {
            "id": node["id"],
            "capacity": math.inf if node["capacity"] == "unlimited" else float(node["capacity"]),
            "x": float(node["position"][0]),
            "y": float(node["position"][1]),
        }
        for node in PROBLEM["nodes"]
    ]
    pq.write_table(pa.Table.from_pylist(rows), tables / "nodes.parquet")
    links = pa.Table.from_pylist(PROBLEM["links"])
    feather.write_feather(links, str(tables / "links.arrow"), compression="uncompressed")
    _csv(tables / "sources.csv", PROBLEM["sources"])
    instance = place / "instance"
    instance.mkdir()
    (instance / "nodes.csv").write_text(INSTANCE_NODES)
    (instance / "joins.csv").write_text(INSTANCE_JOINS)


def _topologies(place: Path) -> None:
    names = [f"n{i}" for i in range(12)]
    matrix = _matrix(len(names))
    lines = [",".join(names), *(",".join(map(str, row)) for row in matrix)]
    (place / "matrix.csv").write_text("\n".join(lines) + "\n")
    with gzip.open(place / "matrix.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    columns = {name: [row[i] for row in matrix] for i, name in enumerate(names)}
    pq.write_table(pa.table(columns), place / "matrix.parquet")
    feather.write_feather(pa.table(columns), str(place / "matrix.arrow"), "uncompressed")
    pairs = [
        {"source": a, "target": b, "latency": matrix[names.index(a)][names.index(b)], "time": t}
        for t in (0, 1)
        for a, b in combinations(names, 2)
    ]
    _csv(place / "pairs.csv", pairs)
    pq.write_table(pa.Table.from_pylist(pairs), place / "pairs.parquet")
    _csv(place / "metric.csv", [{"id": name, "load": i / 12} for i, name in enumerate(names)])
    (place / "topology.csv").write_text(TOPOLOGY)
    (place / "edges.txt").write_text("a b 3.5\nb c 7.1\n")
    (place / "topology.graphml").write_text(GRAPHML)
    links = [{"source": 0, "target": 1, "delay": 3.5}]
    _json(place / "topology.json", {"nodes": [{"id": 0}, {"id": 1}], "links": links})
    _csv(place / "nodes-of.csv", [{"source": "pressure-1", "node": "berlin"}])
    _csv(place / "nodes-of-rooms.csv", [{"source": "pressure-1", "node": "hall"},
                                        {"source": "humidity-3", "node": "attic"}])  # fmt: skip
    names = [row["id"] for row in PROBLEM["nodes"]]
    _csv(place / "room-pairs.csv", [{"source": a, "target": b, "latency": 7} for a, b in
                                    combinations(names, 2)])  # fmt: skip
    _json(place / "regions.geojson", REGIONS)
    (place / "atlas.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in ATLAS))


def _sensors(place: Path) -> None:
    archive = place / "archive"
    archive.mkdir()
    (archive / "2025-01-01_bmp280_sensor_141.csv").write_text(PRESSURES)
    with gzip.open(archive / "2025-01-01_dht22_sensor_142.csv.gz", "wt") as file:
        file.write(HUMIDITIES)
    readings = [
        {"sensor": f"{stream}-1", "region": "r", "stream": stream, "sequence": i,
         "time_ms": 1_735_689_600_000 + 100 * i, "value": 60.0 + i}
        for stream in ("pressure", "humidity")
        for i in range(20)
    ]  # fmt: skip
    _csv(place / "readings.csv", readings)
    four = [f"s1,r,{i},{60 + i}" for i in range(20)]
    (place / "bmp280_four.csv").write_text("\n".join(four) + "\n")
    columns = pa.Table.from_pylist(readings).drop_columns("sequence")
    time = columns.column("time_ms").cast(pa.timestamp("ms"))
    columns = columns.drop_columns("time_ms").append_column("time", time)
    pq.write_table(columns, place / "readings.parquet")
    beside("nova_workloads")
    from test_problem_builder import prepared

    sensors = [("pressure", 1, "a", 48.0, 11.0), ("humidity", 3, "a", 48.5, 12.0)]
    prepared(place / "prepared", sensors, [("pressure-1", "humidity-3")])


def _experiments(place: Path) -> None:
    _yaml(place / "inventory.yaml", INVENTORY)
    write_hosts(place, HOSTS)
    _yaml(place / "experiment.yaml", EXPERIMENT)
    script = {"nova_disturbances": 1, "events": list(MORE_DISTURBANCES)}
    _yaml(place / "disturbances.yaml", script)
    _yaml(place / "jobs.yaml", JOBS)
    for name, parameters in FIGURES.items():
        _yaml(place / f"{name}.yaml", parameters)
    beside("nova_harness")
    from report_runs import BEHAVIOURS, write_run

    few = {name: BEHAVIOURS[name] for name in ("nova", "sink")}
    write_run(place / "run", few, windows=(10,), stress=(False,), duration_s=2)
    steps = [{"name": "join a", "node": "hub", "tasks": [1, 5], "stages": [1, 5]}]
    record = {"url": "http://127.0.0.1:9", "application": "app-1", "steps": steps}
    _json(place / "record.json", record)


def write_hosts(place: Path, hosts: Sequence[dict[str, Any]]) -> None:
    """An inventory of real hosts."""
    _yaml(place / "hosts.yaml", {"inventory": 1, "name": "real", "hosts": hosts})


def _web(place: Path) -> None:
    """What the public archives would answer."""
    day = place / "2025-01-01"
    day.mkdir(parents=True)
    name = "2025-01-01_bmp280_sensor_141.csv"
    (day / name).write_text(PRESSURES)
    row = f'<tr><td><a href="{name}">{name}</a></td><td>2025-01-02 03:00</td><td>182</td></tr>'
    (day / "index.html").write_text(f"<html><body><table>{row}</table></body></html>")
    results = place / "api" / "v2" / "measurements" / "7" / "results"
    results.mkdir(parents=True)
    (results / "index.html").write_text(json.dumps(ATLAS))


def _requests(place: Path) -> None:
    """Requests to the service: what people do, every strategy, and what Flink's plug-in asks."""
    from nova_core.io.files import read_problem
    from nova_core.strategies.base import load, names, parameter_dict

    problem, job, tree = (
        read_problem(place / f"{name}.json").digest for name in ("field", "job", "tree")
    )

    def placed(by: str, digest: str) -> tuple[str, Any]:
        parameters = parameter_dict(load(by).Parameters())
        return f"POST /problems/{digest}/plan", {"strategy": by, "parameters": parameters}

    begin = {"name": "field", "problem": problem, "strategy": "sink", "policy": POLICY}
    reading = ("plan", "problem", "explain", "deltas")
    _directory(
        place / "requests",
        ("POST /problems", FIELD),
        ("POST /placements", begin),
        *(("POST /placements/field/events", event) for event in EVENTS),
        *((f"GET /placements/field/{name}", None) for name in reading),
        ("GET /health", None),
    )
    _directory(
        place / "strategies",
        ("POST /problems", FIELD),
        *(placed(by, problem) for by in names()),
        ("POST /problems", TREE),
        *(placed(by, tree) for by in names()),
    )
    asked = {"strategy": "nova", "parameters": {"sigma": 0.5, "refine": True}}
    _directory(
        place / "plug-in",
        ("POST /problems", JOB),
        ("GET /problems", None),
        (f"GET /problems/{job}", None),
        (f"POST /problems/{job}/plan", asked),
    )


def _directory(place: Path, *requests: tuple[str, Any]) -> None:
    """Requests in order: a line with method and path, then the body."""
    place.mkdir()
    for number, (head, body) in enumerate(requests):
        text = "" if body is None else json.dumps(body)
        (place / f"{number}.request").write_text(f"{head}\n{text}")


def _service(place: Path) -> None:
    """What the service keeps, once it has one placement with events."""
    from starlette.testclient import TestClient

    from nova_core.service.application import application
    from nova_core.service.intake import take_placement, take_problem
    from nova_core.service.settings import Settings
    from nova_core.service.store import Store

    problems, placements = (place / "service" / name for name in ("problems", "placements"))
    for folder in (problems, placements):
        folder.mkdir(parents=True)
    # Not by requests: this process has no threads and children that those forked from it would use.
    taken = take_problem(json.dumps(FIELD).encode(), "application/json", str(problems))
    begin = {"name": "field", "problem": taken["summary"]["id"], "policy": POLICY}
    take_placement(json.dumps(begin).encode(), str(problems), str(placements))
    service = application(Store(Settings(place / "service", limit=2**20)))
    with TestClient(service, base_url="http://127.0.0.1") as client:
        for event in EVENTS:
            answer = client.post("/placements/field/events", json=event)
            assert answer.status_code == 200, (event, answer.text)


def beside(directory: str) -> None:
    """Let helpers of other tests be imported."""
    path = str(ROOT / "tests" / directory)
    if path not in sys.path:
        sys.path.append(path)


def _matrix(size: int) -> list[list[float]]:
    return [[0.0 if a == b else 5.0 + 3 * abs(a - b) for a in range(size)] for b in range(size)]


def _csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def _yaml(path: Path, document: Any) -> None:
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def _json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1))
