"""Traces as graphs with labels, split by query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from nova_research.costream.learned.graph import Graph, GraphBuilder, Measured
from nova_research.costream.learned.network import CLASSES, METRICS, UNITS

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

Part = Literal["train", "validation", "test"]
COLUMNS = (
    *("id", "query", "measured_query", "structure", "problem", "plan", "operators", "origin"),
    "repeat_of",
    *("window_s", *METRICS),
)
# Upper bounds of the shares of all queries; those beyond are for tests.
_TRAIN, _VALIDATION = 0.8, 0.9
_BUILDERS = 64


@dataclass(frozen=True, eq=False)
class Dataset:
    """Traces, one per row.

    Attributes:
        ids: (n,) unique names.
        queries: (n,) names of queries, by which traces are split.
        structure: (n,) of the query, such as ``two-way-agg``.
        origin: (n,) ``rack`` or ``simulator``.
        repeat_of: (n,) trace whose plan this one repeats, or an empty text.
        window: (n,) s of the largest window, 0 for none.
        graphs: of the plans; traces of one run share theirs.
        sinks: (n,) number of the measured query among the graph's.
        labels: per metric (n,): results/s, ms, or 0 and 1; NaN where there is none.
    """

    ids: np.ndarray
    queries: np.ndarray
    structure: np.ndarray
    origin: np.ndarray
    repeat_of: np.ndarray
    window: np.ndarray
    graphs: Sequence[Graph]
    sinks: np.ndarray
    labels: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.ids)

    def parts(self) -> list[Graph]:
        """(n,) the measured query of each graph."""
        pairs = zip(self.graphs, self.sinks.tolist(), strict=True)
        return [graph.part(int(graph.sinks[number])) for graph, number in pairs]

    def rests(self) -> list[Graph]:
        """(n,) what the hosts of each graph run beside the measured query."""
        pairs = zip(self.graphs, self.sinks.tolist(), strict=True)
        return [graph.rest(int(graph.sinks[number])) for graph, number in pairs]

    def target(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """What models learn of a metric: log10(1 + units), or 0 and 1; 0 where it is not known.

        Returns:
            (n,) targets, and (n,) whether they are known.
        """
        values = self.labels[metric]
        known = np.isfinite(values)
        values = np.where(known, values, 0.0)
        if metric not in CLASSES:
            values = np.log10(1 + UNITS[metric] * np.maximum(values, 0.0))
        return values, known

    def take(self, rows: np.ndarray) -> Dataset:
        """The rows that a mask or numbers select."""
        rows = np.arange(len(self))[rows]
        return Dataset(
            ids=self.ids[rows],
            queries=self.queries[rows],
            structure=self.structure[rows],
            origin=self.origin[rows],
            repeat_of=self.repeat_of[rows],
            window=self.window[rows],
            graphs=[self.graphs[row] for row in rows.tolist()],
            sinks=self.sinks[rows],
            labels={metric: values[rows] for metric, values in self.labels.items()},
        )


def read_dataset(
    paths: Sequence[Path],
    *,
    measured: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Read traces and build their graphs.

    Args:
        paths: Parquet files, or directories of such.
        measured: whether measured selectivities, where known, replace estimates.
        progress: called with the traces read and their total.

    Raises:
        NovaError: for a file without traces or a trace that is not valid, naming it.
    """
    from nova_research.costream.training.trace_documents import (
        measured_query,
        plan_of_trace,
        problem_of_trace,
    )
    from nova_research.costream.training.traces import read_traces

    columns = read_traces(paths, COLUMNS).to_pydict()
    builders: dict[str, tuple[Problem, GraphBuilder]] = {}
    graphs: list[Graph] = []
    sinks, before = [], None
    for row, name in enumerate(columns["id"]):
        text = columns["problem"][row]
        if text not in builders:
            if len(builders) >= _BUILDERS:
                builders.pop(next(iter(builders)))
            problem = problem_of_trace(text, name)
            builders[text] = problem, GraphBuilder(problem)
        problem, builder = builders[text]
        # Traces of one run follow each other.
        run = tuple(columns[column][row] for column in ("problem", "plan", "operators"))
        if run == before:
            graphs.append(graphs[-1])
        else:
            counts = _measured(columns["operators"][row]) if measured else None
            graphs.append(builder.graph(plan_of_trace(columns["plan"][row], problem, name), counts))
        before = run
        queries = graphs[-1].queries
        sinks.append(queries.index(measured_query(columns["measured_query"][row], queries, name)))
        if progress is not None:
            progress(row + 1, len(columns["id"]))

    def texts(column: str) -> np.ndarray:
        return np.array([one or "" for one in columns[column]], np.str_)

    def floats(column: str, missing: float) -> np.ndarray:
        return np.array([missing if one is None else one for one in columns[column]], np.float64)

    labels = {metric: floats(metric, np.nan) for metric in METRICS}
    for metric in set(METRICS) - set(CLASSES):
        # Without results there is no latency to learn, and no logarithm of a rate.
        labels[metric] = np.where(labels["success"] > 0, labels[metric], np.nan)
    return Dataset(
        ids=texts("id"),
        queries=texts("query"),
        structure=texts("structure"),
        origin=texts("origin"),
        repeat_of=texts("repeat_of"),
        window=floats("window_s", 0.0),
        graphs=graphs,
        sinks=np.array(sinks, np.int64),
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
    """The part that a query belongs to by its name: 80 % train, 10 % validation, 10 % test.

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
    """(n,) whether each trace belongs to a part."""
    names, row = np.unique(dataset.queries, return_inverse=True)
    selected = np.array([part_of(str(name), seed) == part for name in names], bool)
    return np.asarray(selected[row]) if len(names) else np.zeros(0, bool)
