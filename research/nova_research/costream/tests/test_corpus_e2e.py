"""A small corpus on a virtual rack with Flink."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from needs import skip_or_fail

from nova_core.errors import NovaError
from nova_harness.engines.flink import ready_home
from nova_research.costream.corpus.check import check_corpus
from nova_research.costream.corpus.prepared import Settings
from nova_research.costream.corpus.runner import Watcher, run_corpus
from nova_research.costream.training.traces import read_traces
from nova_testbed.inventory import read_inventory, shipped_inventories
from nova_testbed.rack.requirements import missing

pytestmark = pytest.mark.e2e


def test_queries_run_at_once(tmp_path: Path) -> None:
    reason = str(missing() or "")
    try:
        ready_home(print)
    except NovaError as error:
        reason = str(error)
    if reason:
        skip_or_fail(reason)
    # Two groups of hosts, in a rack of its own, whatever else runs on this machine.
    text = shipped_inventories()["virtual-17"].read_text()
    lines = [
        line for line in text.splitlines() if not any(f"host{n}," in line for n in range(9, 17))
    ]
    file = tmp_path / "rack.yaml"
    file.write_text("\n".join(lines).replace("virtual-17", f"novacorpus-{os.getpid()}"))
    inventory = read_inventory(file)
    settings = Settings(
        seed=3, batch=10, inventory=inventory.name, hosts=4, warm_up_s=2, duration_s=4, drain_s=1,
        cores=1.4,
    )  # fmt: skip
    said: list[str] = []
    made = run_corpus(tmp_path / "c", settings, 4, inventory, Watcher(said.append))
    assert not made.dropped, said
    assert any("2 at once" in line for line in said)
    rows = read_traces([tmp_path / "c"]).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows) >= 4
    assert any(row["success"] for row in rows)
    for row in rows:
        assert row["behind_s"] is not None or row["back_pressure"]
        if row["success"]:
            assert row["e2e_latency_ms"] + 1 >= row["processing_latency_ms"] > 0
    report = check_corpus([tmp_path / "c"])
    # So few traces may well have one class only.
    assert all("nearly missing" in one for one in report.problems), report.problems
