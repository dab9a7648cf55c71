"""Traces as graphs with labels, split by query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from nova_core.errors import NovaError
from nova_core.learned.graph import Graph, GraphBuilder, Measured
from nova_core.learned.network import CLASSES, METRICS

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

Part = Literal["train", "validation", "test"]
COLUMNS = (
    *("id", "query", "structure", "problem", "plan", "operators", "origin", "repeat_of"),
    *("window_s", *METRICS),
)
# Shares of all queries: behind these, queries are for tests.
_TRAIN, _VALIDATION = 0.8, 0.9
_BUILDERS = 64


@dataclass(frozen=True, eq=False)
class Dataset:
    """Traces, one per row.

    Attributes:
        ids: (n,) unique names.
        queries: (n,) what they are split by.
        structure: (n,) of the query, such as ``two-way-agg``.
        origin: (n,) ``rack`` or ``simulator``.
        repeat_of: (n,) trace whose plan was run once more, or an empty text.
        window: (n,) s of the largest window, 0 for none.
        graphs: of the plans.
        labels: per metric (n,): results/s, ms, or 0 and 1; NaN where there is none.
    """

    ids: np.ndarray
    queries: np.ndarray
    structure: np.ndarray
    origin: np.ndarray
    repeat_of: np.ndarray
    window: np.ndarray
    graphs: Sequence[Graph]
    labels: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: np.ndarray) -> Dataset:
        """Some of the rows, by a mask or numbers."""
        rows = np.arange(len(self))[rows]
        return Dataset(
            ids=self.ids[rows],
            queries=self.queries[rows],
            structure=self.structure[rows],
            origin=self.origin[rows],
            repeat_of=self.repeat_of[rows],
            window=self.window[rows],
            graphs=[self.graphs[row] for row in rows.tolist()],
            labels={metric: values[rows] for metric, values in self.labels.items()},
        )


def read_dataset(
    paths: Sequence[Path],
    *,
    measured: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Read traces and make their graphs.

    Args:
        paths: Parquet files, or directories of such.
        measured: whether measured selectivities count, where there are any, in place of estimates.
        progress: is given traces done, and in all.

    Raises:
        NovaError: for a file that holds no traces, naming it, or a trace that is none, naming it.
    """
    from nova_learn.trace_documents import plan_of_trace, problem_of_trace
    from nova_learn.traces import read_traces

    columns = read_traces(paths, COLUMNS).to_pydict()
    builders: dict[str, tuple[Problem, GraphBuilder]] = {}
    graphs = []
    for row, name in enumerate(columns["id"]):
        text = columns["problem"][row]
        if text not in builders:
            if len(builders) >= _BUILDERS:
                builders.pop(next(iter(builders)))
            problem = problem_of_trace(text, name)
            builders[text] = problem, GraphBuilder(problem)
        problem, builder = builders[text]
        counts = _measured(columns["operators"][row]) if measured else None
        graph = builder.graph(plan_of_trace(columns["plan"][row], problem, name), counts)
        if len(graph.sinks) != 1:
            raise NovaError(f"trace {name}: {len(graph.sinks)} queries; a trace is of one")
        graphs.append(graph)
        if progress is not None:
            progress(row + 1, len(columns["id"]))

    def texts(column: str) -> np.ndarray:
        return np.array([one or "" for one in columns[column]], np.str_)

    def floats(column: str, missing: float) -> np.ndarray:
        return np.array([missing if one is None else one for one in columns[column]], np.float64)

    labels = {metric: floats(metric, np.nan) for metric in METRICS}
    for metric in set(METRICS) - set(CLASSES):
        # Without a result there is none whose latency, or whose rate's logarithm, could be learnt.
        labels[metric] = np.where(labels["success"] > 0, labels[metric], np.nan)
    return Dataset(
        ids=texts("id"),
        queries=texts("query"),
        structure=texts("structure"),
        origin=texts("origin"),
        repeat_of=texts("repeat_of"),
        window=floats("window_s", 0.0),
        graphs=graphs,
        labels=labels,
    )


def _measured(text: str | None) -> Measured | None:
    if text is None:
        return None
    return {
        name: (float(one["records_in"]), float(one["records_out"]))
        for name, one in json.loads(text).items()
        if one["records_in"] is not None and one["records_out"] is not None
    }


def part_of(query: str, seed: int = 0) -> Part:
    """What a query is for: 80 % train, 10 % validate, 10 % test; its name decides.

    Args:
        query: its name.
        seed: another one gives another split.
    """
    h = hashlib.blake2b(f"{seed}/{query}".encode(), digest_size=8)
    share = int.from_bytes(h.digest()) / 2**64
    if share < _TRAIN:
        return "train"
    return "validation" if share < _VALIDATION else "test"


def rows_for(dataset: Dataset, part: Part, seed: int = 0) -> np.ndarray:
    """(n,) whether each trace is for that."""
    names, row = np.unique(dataset.queries, return_inverse=True)
    wanted = np.array([part_of(str(name), seed) == part for name in names], bool)
    return np.asarray(wanted[row]) if len(names) else np.zeros(0, bool)
