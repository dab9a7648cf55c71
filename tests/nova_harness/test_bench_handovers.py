"""Plans and figures of `nova bench handovers`, without an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nova_core.errors import NovaError
from nova_engines.results import FIELDS
from nova_harness.bench.handovers import Case, _plans, figures, measure
from nova_harness.control.decision_log import Entry
from nova_harness.control.outcome import silence_ms
from nova_testbed.inventory import read_inventory

CASE = Case(1000, 1, 1, 10.0, 100, load=False, seed=0)


def test_plans_share_no_host(tmp_path: Path) -> None:
    inventory = read_inventory("virtual-14-equal")
    first, second = _plans(replace(CASE, regions=2), inventory, tmp_path)
    hosts = [set(plan.instances.node.tolist()) for plan in (first, second)]
    assert not hosts[0] & hosts[1]
    # Every join is cut in two at least.
    assert all(len(plan.instances) >= 4 for plan in (first, second))


def test_too_few_hosts(tmp_path: Path) -> None:
    inventory = read_inventory("virtual-5")
    with pytest.raises(NovaError, match="virtual-5: has 0 hosts without sources and sink"):
        _plans(CASE, without_workers(inventory), tmp_path)


def without_workers(inventory: Any) -> Any:
    return replace(inventory, hosts=tuple(h for h in inventory.hosts if h.role != "worker"))


def results(begin_s: float, end_s: float, late_ms: Any) -> np.ndarray[Any, Any]:
    """A result every 10 ms; the latency is a function of the time of emission, s."""
    emit = np.arange(begin_s, end_s, 0.01)
    made = np.zeros(len(emit), np.dtype(list(FIELDS)))
    made["left_emit_us"] = np.round(1e6 * emit)
    made["right_emit_us"] = made["left_emit_us"] - 5
    made["arrive_us"] = made["left_emit_us"] + np.array([round(1000 * late_ms(t)) for t in emit])
    return made


def test_figures_are_of_their_periods() -> None:
    # Decided at 94 s, boundary at 100 s; results of the 0.43 s after it arrive together.
    def old_late(t: float) -> float:
        return 50 if t < 94 else 90

    def new_late(t: float) -> float:
        return 500 - 1000 * (t - 100) if t < 100.43 else 70 if t < 102 else 60

    log = {"boundary_ms": 100_000, "seconds": 6.5, "told_s": 0.25}
    entries = [Entry(100.5, "handed-over", "", log)]
    compared = SimpleNamespace(delivered=7, lost=1, duplicated=2, wrong=3)
    valid = [results(80, 100, old_late), results(100, 125, new_late)]
    observed: Any = SimpleNamespace(valid=[valid], compared=compared, silence_ms=silence_ms(valid))
    one = figures(CASE, entries, observed, 125_000)
    assert (one.results, one.lost, one.doubled, one.wrong) == (7, 1, 2, 3)
    assert one.decided_s == pytest.approx([6])
    assert one.told_s == [0.25]
    # From the last result of the old job, at 99.99 + 0.09 s, to the first of the new, at 100.5 s.
    assert one.silence_ms == pytest.approx([420], abs=1)
    # Twice 2 s on both sides, in the 10 s before the decision and before the end.
    assert one.steady_silence_ms == pytest.approx([10] * 4)
    assert one.after_p99_ms == pytest.approx(500, abs=25)
    assert one.steady_p99_ms == pytest.approx(60)
    assert one.deploying_p9999_ms == pytest.approx(90)
    assert one.steady_p9999_ms == pytest.approx(50)
    # The new job has delivered nothing.
    valid[1] = valid[1][:0]
    with pytest.raises(NovaError, match="no results for seconds: the hosts need a lower --rate"):
        figures(CASE, entries, observed, 125_000)


def test_an_engine_whose_jobs_are_not_controlled() -> None:
    with pytest.raises(NovaError, match="jobs of spark cannot be handed over"):
        measure([CASE], "virtual-5", "spark", print)
