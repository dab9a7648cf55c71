"""Baselines for the network: gradient-boosted trees on vectors (LightGBM).

``flat`` is the paper's flat vector: how many operators of which type, their mean selectivities,
how many hosts. ``pooled`` is a strong one: sum, mean, minimum and maximum of every feature per
type of operator and of the hosts, and the load of each host. Either vector is twice there: of the
measured query, and of all queries on its hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import lightgbm
import numpy as np

from nova_research.costream.learned.features import FEATURES, HOST, KINDS
from nova_research.costream.learned.graph import Graph
from nova_research.costream.learned.network import CLASSES, METRICS, UNITS
from nova_research.costream.training.dataset import Dataset

_ROUNDS, _PATIENCE = 2000, 50
_PARAMETERS: Mapping[str, Any] = {
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
    "seed": 0,
}


def flat(graph: Graph) -> np.ndarray:
    """Numbers of operators and hosts, and mean selectivities (Ganapathi et al. 2009)."""
    counts = np.bincount(graph.kind, minlength=len(KINDS))
    selectivities = []
    for number, kind in enumerate(KINDS):
        if "selectivity" in FEATURES[kind]:
            rows = graph.table[graph.kind == number, FEATURES[kind].index("selectivity")]
            selectivities.append(rows.mean() if len(rows) else 0.0)
    return np.array([*counts, len(graph.hosts), *selectivities])


def pooled(graph: Graph) -> np.ndarray:
    """All features of a graph, pooled by type of operator, and of hosts and their loads."""
    parts = [flat(graph), _pool(graph.hosts, len(HOST))]
    for number, kind in enumerate(KINDS):
        rows = graph.table[graph.kind == number]
        parts.append(_pool(rows[:, : len(FEATURES[kind])], len(FEATURES[kind])))
    received = 10.0 ** graph.table[:, FEATURES["sink"].index("rate_in")] - 1
    emitted = 10.0 ** graph.table[:, FEATURES["sink"].index("rate_out")] - 1
    size = 10.0 ** graph.table[:, FEATURES["sink"].index("bytes_out")] - 1
    hosts = len(graph.hosts)
    cores, memory, _, mbit = (10.0 ** graph.hosts[:, :4] - 1).T
    load = np.bincount(graph.host, received, hosts) / np.maximum(cores, 1e-3)
    producer, consumer = graph.ends
    crossing = graph.host[producer] != graph.host[consumer]
    bits = 8e-6 * (emitted * size)[producer][crossing]
    sent = np.bincount(graph.host[producer][crossing], bits, hosts) / np.maximum(mbit, 1e-3)
    held = np.zeros(len(graph))
    for kind in ("aggregate", "join"):
        mine = graph.kind == KINDS.index(kind)
        column = FEATURES[kind].index("held")
        held[mine] = (10.0 ** graph.table[mine, column] - 1) * size[mine]
    state = np.bincount(graph.host, held, hosts) / np.maximum(1e6 * memory, 1.0)
    operators = np.bincount(graph.host, minlength=hosts)
    loads = np.log10(1e-9 + np.stack([load, sent, state], axis=1))
    parts += [_pool(loads, 3), _pool(operators[:, None], 1), np.array([crossing.sum()])]
    return np.concatenate(parts)


def _pool(rows: np.ndarray, width: int) -> np.ndarray:
    if len(rows) == 0:
        return np.full(4 * width, np.nan)
    return np.concatenate([rows.sum(0), rows.mean(0), rows.min(0), rows.max(0)])


VECTORS = {"flat": flat, "pooled": pooled}


@dataclass(frozen=True, eq=False)
class Trees:
    """Boosted trees, one ensemble of them per metric.

    Attributes:
        vector: name in `VECTORS`.
        boosters: by metric.
    """

    vector: str
    boosters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def trained(cls, vector: str, data: Dataset, validation: Dataset) -> Trees:
        """Train with early stopping on the validation traces."""
        boosters = {}
        columns, held = _columns(vector, data), _columns(vector, validation)
        for metric in METRICS:
            target, known = data.target(metric)
            held_target, held_known = validation.target(metric)
            aim = {"objective": "binary", "is_unbalance": True} if metric in CLASSES else {
                "objective": "regression"
            }  # fmt: skip
            # Threads that wait for each other keep their cores busy: beside other work, two of them
            # took forty times longer than one.
            parameters = {**_PARAMETERS, **aim, "num_threads": 1}
            first = lightgbm.Dataset(columns[known], target[known])
            second = lightgbm.Dataset(held[held_known], held_target[held_known], reference=first)
            boosters[metric] = lightgbm.train(
                parameters,
                first,
                _ROUNDS,
                valid_sets=[second],
                callbacks=[lightgbm.early_stopping(_PATIENCE, verbose=False)],
            )
        return cls(vector, boosters)

    def values(self, data: Dataset) -> dict[str, np.ndarray]:
        """Per metric (n,) values, or probabilities."""
        columns = _columns(self.vector, data)
        values = {}
        for metric, booster in self.boosters.items():
            raw = np.asarray(booster.predict(columns), np.float64)
            if metric not in CLASSES:
                raw = (10.0 ** np.maximum(raw, 0.0) - 1) / UNITS[metric]
            values[metric] = raw
        return values


def _columns(vector: str, data: Dataset) -> np.ndarray:
    """(n, f) a vector of each measured query, and one of all that its hosts run."""
    of = VECTORS[vector]
    pairs = zip(data.parts(), data.graphs, strict=True)
    return np.stack([np.concatenate([of(part), of(graph)]) for part, graph in pairs])
