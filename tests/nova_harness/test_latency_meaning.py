"""Latencies mean the same wherever they come from: one way, ms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nova_core.costspace.latency_files import read_measurements
from nova_core.io.files import read_problem
from nova_harness.experiment.problem import problem_document, problem_of
from nova_testbed.inventory import read_inventory
from nova_testbed.probing import PairRtt
from nova_testbed.topology import write_pairs, write_problem
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload


@pytest.mark.filterwarnings("ignore:.*no positions")
def test_measured_problems_are_those_of_experiments(tmp_path: Path) -> None:
    """Links that keep exactly what the inventory asks give both the same latencies."""
    inventory = read_inventory("virtual-14")
    capacity = {host.name: 1e5 for host in inventory.hosts}
    document = problem_document(inventory, capacity, DebsWorkload(regions=4), Traffic(1000, 100))
    experiment = problem_of(document, tmp_path / "experiment.yaml")
    rtts = [PairRtt(a.name, b.name, x.rtt_ms, 1, (x.rtt_ms,), ()) for a, b, x in inventory.pairs()]
    write_problem(inventory, rtts, [], tmp_path / "measured.yaml")
    measured = read_problem(tmp_path / "measured.yaml")
    assert experiment.measured is not None and measured.measured is not None
    assert np.array_equal(measured.nodes.ids, experiment.nodes.ids)
    assert measured.measured.latency.tolist() == experiment.measured.latency.tolist()
    write_pairs(rtts, tmp_path / "pairs.csv")
    pairs = read_measurements(tmp_path / "pairs.csv").pairs().latency
    assert sorted(pairs.tolist()) == sorted(experiment.measured.latency.tolist())
