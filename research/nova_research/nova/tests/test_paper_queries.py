"""Algorithm 1 as the paper has it, on whole queries: as written, and nothing is improved."""

from __future__ import annotations

import numpy as np
from query_cases import asking, chain, topology

from nova_core.model.verify import verify
from nova_core.strategies import place


def test_whole_queries_stay_as_they_are_written_and_are_cut_to_fit() -> None:
    loose = asking(topology(3, 12), chain())
    plan = place(loose, "nova-paper")
    assert plan.strategy == "nova-paper" and verify(plan).ok
    assert not (plan.rewriting.push_filters or plan.rewriting.share_operators)
    best = place(
        loose, push_filters=False, split_aggregates=False, share_operators=False
    ).objective_value("latency")
    assert best <= plan.objective_value("latency") * (1 + 1e-9)
    most = plan.graph.required.max()
    tight = loose.with_capacity(np.full(12, 0.8 * most))
    cut = place(tight, "nova-paper")
    assert verify(cut).ok and len(cut.instances) > cut.operator_count
