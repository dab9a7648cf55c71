"""Labels, hardware, rounds, files and reports of a corpus."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import NovaError
from nova_engines.flow import CUT, FILTER, JOIN, SINK, SOURCE, Flow, Operator
from nova_engines.results import ROW, ResultRecords, dtype
from nova_engines.sources import READINGS, Source, Sources
from nova_harness.results.schema import OperatorCounts
from nova_research.costream.corpus.check import check_corpus
from nova_research.costream.corpus.commands import corpus
from nova_research.costream.corpus.hardware import (
    MIB,
    RackLimits,
    groups_of,
    random_ends,
    random_hardware,
    random_memory,
)
from nova_research.costream.corpus.measured import idle_share, labels, operator_counts
from nova_research.costream.corpus.prepared import fill, items_of, measured_s, next_load
from nova_research.costream.corpus.ranges import PAPER, RACK
from nova_research.costream.training.traces import (
    Trace,
    append,
    read_traces,
    schema,
    table_of,
    write_traces,
)
from nova_testbed.inventory import HostSpec, Inventory, read_inventory

OF_A = Source("a", kind=READINGS, path="/readings")
SOURCES = Sources((OF_A,), start_ms=50_000, first_ms=1000)
BEGIN, END = 52_000_000, 58_000_000


def trace(number: int, **changes: Any) -> Trace:
    """A trace."""
    problem = {"nodes": [{"id": "a", "cpu": 0.1, "memory": 512 * MIB}], "name": f"q{number}"}
    problem |= {"sources": [{"node": "a", "rate": 100.0}], "queries": [{"sink": "a"}]}
    facts: dict[str, Any] = {
        "id": str(number), "query": f"q{number // 2}", "structure": "linear",
        "plan": '{"instances": []}',
        "problem": json.dumps(problem), "operators": None, "origin": "rack", "engine": "flink",
        "engine_version": "2", "nova_version": "1", "made": "2030-01-01T00:00:00Z", "seed": 1,
        "batch": 0, "repeat_of": None, "duration_s": 6.0, "success": True, "back_pressure": False,
        "throughput": 10.0, "e2e_latency_ms": 20.0, "processing_latency_ms": 10.0, "results": 60,
        "window_s": None,
    }  # fmt: skip
    return Trace(**facts | changes)


def failed(number: int) -> Trace:
    """A trace without results."""
    nothing = {"throughput": 0.0, "results": 0, "success": False, "back_pressure": True}
    return trace(number, e2e_latency_ms=None, processing_latency_ms=None, **nothing)


# --- labels -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 12_000), st.integers(0, 900), st.integers(0, 3000))))
def test_labels_follow_the_papers_definitions(results: list[tuple[int, int, int]]) -> None:
    """Each result: ms of event time since the start, ms its reading came late, ms on its way."""
    made, arrive = np.zeros(len(results), dtype(ROW)), []
    for number, (ms, late, way) in enumerate(results):
        emitted = 1000 * (50_000 + ms + late)
        arrive.append(emitted + 1000 * way)
        made[number] = (-1, 0, 0, arrive[-1], 1000 + ms, emitted, 1000 + ms, emitted)
    rows = ResultRecords(made)
    found = labels(rows, SOURCES, (BEGIN, END), 0.0, failed=False)
    inside = [one for one, at in zip(results, arrive, strict=True) if BEGIN <= at < END]
    assert found.results == len(inside) and found.success == bool(inside)
    assert found.throughput == pytest.approx(len(inside) / 6)
    if inside:
        assert found.processing_latency_ms == pytest.approx(np.median([w for _, _, w in inside]))
        assert found.e2e_latency_ms == pytest.approx(np.median([b + w for _, b, w in inside]))
    else:
        assert found.e2e_latency_ms is found.processing_latency_ms is None


def test_back_pressure_is_a_source_two_per_cent_behind_or_an_error() -> None:
    for behind, failed_, expected in (
        (0.11, False, False), (0.12, False, True), (None, True, True), (None, False, False)
    ):  # fmt: skip
        found = labels(None, SOURCES, (BEGIN, END), behind, failed=failed_)
        assert found.back_pressure is expected and not found.success
        assert found.behind_s == behind


def test_counts_of_operators_are_those_of_the_vertices_they_begin_and_end() -> None:
    flow = Flow((
        Operator("source a-1", "x", SOURCE, source="a-1"),
        Operator("q/f1(a-1)", "x", FILTER, ("source a-1",)),
        Operator("send q/f1(a-1) to q/j1(a-1*b-1)#0 left", "x", CUT, ("q/f1(a-1)",)),
        Operator("source b-1", "y", SOURCE, source="b-1"),
        Operator("send source b-1 to q/j1(a-1*b-1)#0 right", "y", CUT, ("source b-1",)),
        Operator(
            "join q/j1(a-1*b-1)#0", "y", JOIN,
            ("send q/f1(a-1) to q/j1(a-1*b-1)#0 left",),
            ("send source b-1 to q/j1(a-1*b-1)#0 right",),
        ),
        Operator("q/f2(a-1*b-1)@q/j1(a-1*b-1)#0", "y", FILTER, ("join q/j1(a-1*b-1)#0",)),
        Operator("sink q", "y", SINK, ("q/f2(a-1*b-1)@q/j1(a-1*b-1)#0",), query="q"),
    ))  # fmt: skip
    counts = [
        OperatorCounts(
            name="Source: source a-1 -> q/f1(a-1) -> send q/f1(a-1) to q/j1(a-1*b-1)#0 left",
            node="x", records_in=0, records_out=40,
        ),
        OperatorCounts(
            name="Source: source b-1 -> send source b-1 to q/j1(a-1*b-1)#0 right",
            node="y", records_in=0, records_out=70,
        ),
        OperatorCounts(
            name="join q/j1(a-1*b-1)#0 -> q/f2(a-1*b-1)@q/j1(a-1*b-1)#0 -> Sink: sink q",
            node="y", records_in=110, records_out=0,
        ),
    ]  # fmt: skip
    assert operator_counts(flow, counts, {"q": 9}, {"a-1": 80}) == {
        "a-1": {"records_in": None, "records_out": 80},
        "q/f1(a-1)": {"records_in": 80, "records_out": 40},
        "b-1": {"records_in": None, "records_out": 70},
        "q/j1(a-1*b-1)": {"records_in": 110, "records_out": None},
        "q/f2(a-1*b-1)": {"records_in": None, "records_out": 9},
        "q/sink": {"records_in": 9, "records_out": None},
    }
    assert "a-1" not in operator_counts(flow, counts, {"q": 9}, {})


def test_idle_time_is_read_as_the_kernel_writes_it() -> None:
    before = "cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 1 2 3\n"
    after = "cpu  150 10 50 835 55 0 0 0 60 0\n"
    assert idle_share(before, after) == 0.5
    assert idle_share(before, before) == 1.0


# --- what is run --------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.sampled_from([RACK, PAPER]), st.integers(1, 3))
def test_hardware_is_in_its_ranges(seed: int, ranges: Any, sources: int) -> None:
    rng = np.random.default_rng(seed)
    memory = random_memory(rng, ["a", "b", "c", "d"], ranges)
    found = random_hardware(rng, memory, ranges)
    for host in found.hosts:
        assert host.cpu in ranges.cpu and host.memory == memory[host.name]
        assert host.memory / MIB in ranges.memory_mib
        assert host.mbit in ranges.mbit and host.latency_ms in ranges.latency_ms
    hosts = {host.name: host for host in found.hosts}
    for (a, b), link in found.links().items():
        assert link.rtt_ms == hosts[a].latency_ms + hosts[b].latency_ms
        assert link.bandwidth_mbit == min(hosts[a].mbit, hosts[b].mbit)
    document = found.document()
    assert len(found.links()) == len(document["latency"]["pairs"]) == 6
    assert {row["id"]: row["cpu"] for row in document["nodes"]} == found.cpu()
    nodes, sink = random_ends(rng, found, sources)
    assert len(nodes) == sources and {*nodes, sink} <= hosts.keys()
    nodes, sink = random_ends(rng, found, sources, edge=True)
    # Of four hosts, one has the sources; none has less of both than that one.
    (weak,) = {hosts[name] for name in nodes}
    assert not any(one.cpu < weak.cpu and one.memory < weak.memory for one in found.hosts)


@given(
    st.sets(st.sampled_from([0.1, 0.125, 0.2, 0.25, 0.4, 0.5, 1.0, 2.0, 4.0])),
    st.sampled_from([4.0, 5.0, 6.0, 7.0, 8.0]),
)
def test_the_measured_time_is_a_whole_number_of_slides(slides: set[float], least: float) -> None:
    seconds = measured_s(slides, least, 16.0)
    assert least <= seconds < least + 4
    assert all(abs(seconds / one - round(seconds / one)) < 1e-9 for one in slides)
    assert measured_s({0.3}, 1.0, 1.5) == 1.0


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0.05, 1.5), st.sampled_from([6.0, 8.0])), min_size=1
    )
)
def test_a_round_has_the_first_and_what_fits_beside_it(
    waiting: list[tuple[int, float, float]],
) -> None:
    made: list[Any] = [
        SimpleNamespace(
            hardware=SimpleNamespace(hosts=[SimpleNamespace(name=f"g{group}")]),
            cores=cores,
            seconds=seconds,
        )
        for group, cores, seconds in waiting
    ]
    chosen = fill(made, 1.4, {f"g{group}": group for group in range(4)})
    assert chosen[0] is made[0]
    groups = [one.hardware.hosts[0].name for one in chosen]
    assert len(set(groups)) == len(groups)
    assert len({one.seconds for one in chosen}) == 1
    assert len(chosen) == 1 or sum(one.cores for one in chosen) <= 1.4 + 1e-6


def test_batches_have_all_traces_and_their_repetitions() -> None:
    batches = list(items_of(25, 8))
    assert [len([one for one in batch if not one.again]) for batch in batches] == [8, 8, 8, 1]
    assert [one.number for batch in batches for one in batch if one.again] == [9, 19]
    ids = [one.id(7) for batch in batches for one in batch]
    assert len(set(ids)) == 27 and ids[0] == "7-000000"
    # Both traces of a query are in one batch.
    assert all(len({one.problem for one in batch}) >= len(batch) // 3 for batch in batches)


def test_the_load_changes_when_too_few_or_too_many_fail() -> None:
    wanted = (0.25, 0.5)
    assert next_load(2.0, 0.3, wanted) == 2.0
    assert next_load(2.0, 0.1, wanted) == 3.0
    assert next_load(1.5, 0.7, wanted) == 1.0
    assert next_load(28.0, 0.1, wanted) == 30.0 and next_load(0.14, 0.9, wanted) == 0.1


def test_groups_leave_the_coordinator_out() -> None:
    groups = groups_of(read_inventory("virtual-17"), 4)
    assert len(groups) == 4 and len({name for group in groups for name in group}) == 16
    assert all(name != "sink" for group in groups for name in group)
    with pytest.raises(NovaError, match="16 hosts beside the coordinator; a query takes 20"):
        groups_of(read_inventory("virtual-17"), 20)
    with pytest.raises(NovaError, match="of virtual hosts only"):
        groups_of(Inventory("real", (HostSpec("a", "sink"), HostSpec("b"))), 1)


def test_limits_are_put_back_however_a_batch_ends() -> None:
    calls: list[tuple[str, Any]] = []
    rack: Any = SimpleNamespace(
        set_limits=lambda **limits: calls.append(("limits", limits)),
        set_links=lambda links: calls.append(("links", links)),
    )
    inventory = read_inventory("virtual-17")
    limits = RackLimits(inventory, rack)
    with pytest.raises(KeyboardInterrupt), limits.changed({"host1": 640 * MIB}):
        limits.lift({"host1", "host2"})
        raise KeyboardInterrupt
    (_, memory), (_, lifted), (_, back), (_, links) = calls
    assert memory == {"memory": {"host1": 640 * MIB}}
    assert lifted["cpu"]["host1"] > lifted["cpu"]["host3"] == 0.08
    assert back["cpu"] == {host.name: host.cpu for host in inventory.hosts}
    assert back["memory"] == {host.name: host.memory for host in inventory.hosts}
    assert len(links) == 17 * 16 / 2


# --- files and reports --------------------------------------------------------------------------


def test_traces_are_read_as_they_were_written(tmp_path: Path) -> None:
    append(tmp_path, 0, [trace(0), failed(1)])
    append(tmp_path, 1, [trace(2, repeat_of="0", operators="{}", window_s=0.5, idle=0.2)])
    assert len(list(tmp_path.glob("part-*.parquet"))) == 2
    table = read_traces([tmp_path])
    assert table.schema == schema()
    assert table.to_pylist() == table_of([
        trace(0), failed(1), trace(2, repeat_of="0", operators="{}", window_s=0.5, idle=0.2)
    ]).to_pylist()  # fmt: skip
    assert read_traces([tmp_path], ["id", "seed"]).column_names == ["id", "seed"]
    # Of one id, the first counts.
    write_traces(tmp_path / "z.parquet", table_of([trace(0, throughput=7.0), trace(5)]))
    again = read_traces([tmp_path, tmp_path / "z.parquet"]).to_pylist()
    assert [(row["id"], row["throughput"]) for row in again] == [
        ("0", 10.0), ("1", 0.0), ("2", 10.0), ("5", 10.0)
    ]  # fmt: skip
    assert len(read_traces([])) == 0


def test_what_holds_no_traces_is_a_clear_line(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "a.parquet").write_text("no Parquet")
    with pytest.raises(NovaError, match=r"a\.parquet: cannot be read as traces"):
        read_traces([tmp_path / "a.parquet"])
    pq.write_table(pa.table({"id": ["1"]}), tmp_path / "b.parquet")
    with pytest.raises(NovaError, match="holds no traces: column 'query' is missing"):
        read_traces([tmp_path / "b.parquet"])
    table = table_of([trace(0), trace(1)])
    at = table.column_names.index("success")
    damaged = table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))
    damaged = damaged.set_column(at, "success", pa.array([True, None]))
    pq.write_table(damaged, tmp_path / "d.parquet")
    with pytest.raises(NovaError, match="column 'success' has rows without a value"):
        read_traces([tmp_path / "d.parquet"])
    twice = table.append_column("id", table.column("id"))
    pq.write_table(twice, tmp_path / "e.parquet")
    with pytest.raises(NovaError, match=r"cannot be read as traces: .*id.* 2 times"):
        read_traces([tmp_path / "e.parquet"])
    with pytest.raises(NovaError, match="no such file or directory"):
        read_traces([tmp_path / "c.parquet"])
    (tmp_path / "f.parquet").mkdir()
    write_traces(tmp_path / "g.parquet", table_of([]))
    for name in ("f.parquet", "g.parquet"):
        with pytest.raises(NovaError, match=rf"{name}: holds no traces"):
            read_traces([tmp_path / name])
        assert len(read_traces([tmp_path / name], begun=True)) == 0


def test_names_of_files_need_not_be_utf_8(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.parquet"))
    write_traces(tmp_path / "made.parquet", table_of([trace(0)]))
    (tmp_path / "made.parquet").rename(odd)
    assert len(read_traces([odd])) == 1
    (name,) = check_corpus([odd]).files
    assert name.endswith(".parquet") and name.encode()


def test_a_check_finds_noise_and_leaks(tmp_path: Path) -> None:
    train, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    noisy = trace(0, id="0-again", repeat_of="0", throughput=20.0, back_pressure=True)
    write_traces(train, table_of([trace(0), noisy, failed(2), trace(3)]))
    write_traces(test, table_of([trace(4), failed(6)]))
    good = check_corpus([train, test])
    assert good.problems == [] and good.files == {str(train): 4, str(test): 2}
    assert good.noise["throughput"].q50 == 2.0 and good.noise["throughput"].pairs == 1
    assert good.noise["back_pressure"].agree == 0.0 and good.noise["success"].agree == 1.0
    assert good.balance["all"].success == pytest.approx(4 / 6)
    assert good.ranges["CPU (cores)"].median == 0.1
    assert good.ranges["memory (MiB)"].median == 512
    doubtful = trace(9, results=0)
    write_traces(test, table_of([trace(1), trace(4), trace(8, problem=trace(4).problem), doubtful]))
    problems = check_corpus([train, test]).problems
    assert any("1 queries are in" in one and "such as q0" in one for one in problems)
    assert "traces 4 and 8 are of one plan, but no repetition" in problems
    assert any("trace 9: success is True, but it has 0 results" in one for one in problems)
    write_traces(test, table_of([trace(1, problem="[]"), failed(2)]))
    (found,) = check_corpus([test]).problems
    assert found.startswith("trace 1: problem or plan: Expected `object`, got `array`")
    write_traces(test, table_of([trace(n) for n in range(20)]))
    assert any("success is true of 100%" in one for one in check_corpus([test]).problems)


def test_commands_check_and_merge(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    append(tmp_path / "c", 0, [trace(0), failed(2)])
    runner = CliRunner()
    done = runner.invoke(corpus, ["check", str(tmp_path / "c"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["balance"]["all"]["traces"] == 2
    shown = runner.invoke(corpus, ["check", str(tmp_path / "c")])
    assert "linear" in shown.stdout and "event rate" in shown.stdout
    out = tmp_path / "all.parquet"
    assert runner.invoke(corpus, ["merge", str(tmp_path / "c"), "-o", str(out)]).exit_code == 0
    assert read_traces([out]).to_pylist() == read_traces([tmp_path / "c"]).to_pylist()
    one_class = tmp_path / "one.parquet"
    write_traces(one_class, table_of([trace(0)]))
    assert runner.invoke(corpus, ["check", str(one_class)]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "x", "-n", "4", "--batch", "3"], "a multiple of 2 is expected"),
        (
            ["run", "x", "-n", "4", "--strategy", "nova", "--strategy", "sink"],
            "--plans 2: more than",
        ),
        (["run", "x", "-n", "4", "--strategy", "best"], "unknown 'best'"),
        (["run", "x", "-n", "4", "--strategy", "costream"], "name its --model"),
        (["run", "x", "-n", "4", "--inventory", "virtual-5", "--hosts", "9"], "a query takes 9"),
        (["merge", "--output", "x.csv"], "a .parquet file is expected"),
    ],
)
def test_what_cannot_be_done_is_a_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    write_traces(tmp_path / "t.parquet", table_of([trace(0)]))
    if arguments[0] == "merge":
        arguments = [*arguments, str(tmp_path / "t.parquet")]
    done = CliRunner().invoke(corpus, arguments)
    assert isinstance(done.exception, NovaError) and said in str(done.exception)
