"""Ensembles of trained networks: their files and their predictions. Needs numpy only.

A file is an ``.npz``: ``header`` holds JSON in bytes, every other array the parameters of all
members, one per row of the first axis. It holds no code; arrays that differ from the header are
refused.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np

from nova_core.errors import NovaError
from nova_core.io.safe_files import atomic_write, read_bytes
from nova_research.costream.learned.features import FEATURES, HOST, KINDS
from nova_research.costream.learned.graph import Batch, Graph, Layout, Singles, stack
from nova_research.costream.learned.network import (
    CLASSES,
    METRICS,
    REGRESSIONS,
    UNITS,
    encode,
    forward,
    shapes,
)

VERSION = 3
SHIPPED = Path(__file__).parent / "models" / "costream.npz"

_MOST_BYTES = 64 * 2**20
_MOST_MEMBERS, _MOST_HIDDEN, _MOST_LAYERS = 32, 1024, 4
_AT_ONCE = 128
# The greatest power of ten that is predicted; greater outputs are clipped.
_MOST_POWER = 12.0
_HOST = "host"
# Bounds of features where no training has set any.
_FAR = 1e30
# A feature may be so much of its trained range beyond it, and so much in any case.
_MARGIN, _LEAST_MARGIN = 0.05, 0.01
_FIELDS = {
    *("nova_model", "members", "hidden", "layers", "features", "metrics", "kinds", "crowd", "facts")
}
# What zipfile, numpy's header and JSON raise of damaged bytes: encryption is a RuntimeError, an
# unknown compression a NotImplementedError, a header of something else a TypeError.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)


class ModelError(NovaError):
    """A model file that is missing, damaged, or not of this version's features."""


@dataclass(frozen=True)
class Scale:
    """How features are scaled: by the median and the range of the middle half (robust scaling).

    Features beyond the trained range count as its end: a network extrapolates without bounds.

    Attributes:
        centre: per type of operator and for ``host``, (f,).
        spread: likewise, above 0.
        least: likewise, the least value trained with.
        greatest: likewise, the greatest.
    """

    centre: Mapping[str, Singles]
    spread: Mapping[str, Singles]
    least: Mapping[str, Singles]
    greatest: Mapping[str, Singles]

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray]) -> Self:
        """The scale of features ((rows, f)) by type; one that hardly varies keeps its unit."""
        centre, spread, least, greatest = {}, {}, {}, {}
        for kind, names in _columns().items():
            rows = columns.get(kind)
            if rows is None or len(rows) == 0:
                rows = np.zeros((1, len(names)))
                ends = np.full(len(names), -_FAR), np.full(len(names), _FAR)
            else:
                ends = rows.min(axis=0), rows.max(axis=0)
            least[kind], greatest[kind] = (end.astype(np.float32) for end in ends)
            low, middle, high = np.percentile(rows, [25, 50, 75], axis=0)
            wide = high - low
            deviation = rows.std(axis=0)
            wide = np.where(wide > 1e-3, wide, np.where(deviation > 1e-3, deviation, 1.0))
            centre[kind], spread[kind] = middle.astype(np.float32), wide.astype(np.float32)
        return cls(centre, spread, least, greatest)

    def scaled(self, layout: Layout, batch: Batch) -> Batch:
        """The batch with scaled features."""
        features = tuple(
            self._of(kind, one) for (kind, _), one in zip(layout, batch.features, strict=True)
        )
        return batch._replace(features=features, hosts=self.of_hosts(batch.hosts))

    def of_hosts(self, features: Any) -> Any:
        """Scaled features of hosts ((..., f))."""
        return self._of(_HOST, features)

    def _of(self, kind: str, features: Any) -> Any:
        bounded = np.clip(features.astype(np.float32), self.least[kind], self.greatest[kind])
        return (bounded - self.centre[kind]) / self.spread[kind]

    def beyond(self, kind: str, features: np.ndarray) -> list[str]:
        """Names of features ((rows, f)) that are beyond the trained range in any row."""
        least, greatest = self.least[kind], self.greatest[kind]
        margin = np.maximum(_MARGIN * (greatest - least), _LEAST_MARGIN)
        strange = ((features < least - margin) | (features > greatest + margin)).any(axis=0)
        return [name for name, one in zip(_columns()[kind], strange, strict=True) if one]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of an ensemble for some queries.

    Attributes:
        members: per metric (m, q): the value of a regression, in results/s or ms, or the
            probability of a class.
    """

    members: Mapping[str, np.ndarray]

    def value(self, metric: str) -> np.ndarray:
        """(q,) geometric mean of the members' values; of a class, their mean probability."""
        members = self.members[metric]
        if metric in CLASSES:
            return np.asarray(members.mean(axis=0))
        unit = UNITS[metric]
        return np.asarray(np.expm1(np.log1p(unit * members).mean(axis=0)) / unit)

    def spread(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """((q,), (q,)) the lowest and the highest of the members."""
        return self.members[metric].min(axis=0), self.members[metric].max(axis=0)

    def holds(self, metric: str) -> np.ndarray:
        """(q,) the majority vote of the members on a class."""
        votes = (self.members[metric] > 0.5).sum(axis=0)
        return np.asarray(2 * votes > len(self.members[metric]))


@dataclass(frozen=True, eq=False)
class Model:
    """An ensemble.

    Attributes:
        members: parameters of each, named as in `network.shapes`.
        hidden: width of states.
        layers: of updates, see `network.shapes`.
        scale: of features.
        kinds: types of operators it has been trained for.
        crowd: most operators on one host that it has been trained with; 0 if unknown.
        facts: provenance, such as the settings of the training.
    """

    members: Sequence[Mapping[str, Singles]]
    hidden: int
    layers: int
    scale: Scale
    kinds: tuple[str, ...] = KINDS
    facts: Mapping[str, Any] | None = None
    crowd: int = 0

    def encoded(self, layout: Layout, batch: Batch) -> list[Singles]:
        """(o, h) encoded operators per member, of a batch (scaled) with one query."""
        return [encode(np, one, layout, batch)[:, 0] for one in self.members]

    def outputs(
        self, layout: Layout, batch: Batch, others: Sequence[Singles] | None = None
    ) -> dict[str, np.ndarray]:
        """Per metric (m, s, b) values and probabilities, see `network.forward`.

        Args:
            layout: of the batch.
            batch: features scaled.
            others: per member (b, k, h) sums of other queries' encoded operators on the hosts.
        """
        raw = [
            forward(np, one, layout, batch, None if others is None else others[number])
            for number, one in enumerate(self.members)
        ]
        return {metric: _values(metric, np.stack([o[metric] for o in raw])) for metric in METRICS}

    def predict(self, graphs: Sequence[Graph]) -> Predictions:
        """Predictions for every query of some graphs, in their order."""
        parts: dict[str, list[np.ndarray]] = {metric: [] for metric in METRICS}
        for begin in range(0, len(graphs), _AT_ONCE):
            some = graphs[begin : begin + _AT_ONCE]
            stacked = stack(some)
            batch = self.scale.scaled(stacked.layout, stacked.batch)
            outputs = self.outputs(stacked.layout, batch)
            for metric in METRICS:
                parts[metric] += [
                    outputs[metric][:, sinks, number] for number, sinks in enumerate(stacked.sinks)
                ]
        none = np.zeros((len(self.members), 0))
        return Predictions({m: np.concatenate([none, *p], axis=1) for m, p in parts.items()})

    @cached_property
    def digest(self) -> str:
        """Hash of the parameters, to tell ensembles apart."""
        import hashlib

        h = hashlib.blake2b(digest_size=8)
        for member in self.members:
            for name in sorted(member):
                h.update(np.ascontiguousarray(member[name]).data)
        return h.hexdigest()

    def untrained(self, graph: Graph) -> list[str]:
        """Types of operators of a graph that the model has not been trained for."""
        present = {KINDS[kind] for kind in np.unique(graph.kind).tolist()}
        return sorted((present - set(self.kinds)) | set(graph.foreign))

    def doubt(self, graph: Graph) -> str:
        """Why predictions for a graph may be far off, after "the model"; empty where none is.

        It names types of operators that the model has not been trained for, else features beyond
        the range it has been trained with, or more operators on a host.
        """
        if foreign := self.untrained(graph):
            return f"has not been trained for operators of the type {', '.join(foreign)}"
        strange = [f"host {name}" for name in self.scale.beyond(_HOST, graph.hosts)]
        for number, kind in enumerate(KINDS):
            rows = graph.table[graph.kind == number, : len(FEATURES[kind])]
            strange += [f"{kind} {name}" for name in self.scale.beyond(kind, rows)]
        many = int(np.bincount(graph.host).max(initial=0))
        if 0 < self.crowd < many:
            return f"has been trained with up to {self.crowd} operators on a host, not with {many}"
        if strange:
            return f"has not been trained with such values of {', '.join(strange)}"
        return ""


def _values(metric: str, raw: np.ndarray) -> np.ndarray:
    raw = raw.astype(np.float64)
    if metric in CLASSES:
        return np.asarray(1 / (1 + np.exp(-np.clip(raw, -60, 60))))
    powers = np.clip(raw, 0.0, _MOST_POWER)
    return np.asarray((10.0**powers - 1) / UNITS[metric])


def _columns() -> dict[str, tuple[str, ...]]:
    return {**FEATURES, _HOST: HOST}


# --- files ---------------------------------------------------------------------------------------


def write_model(model: Model, path: str | os.PathLike[str], half: bool = True) -> None:
    """Write a model; `half` keeps parameters in half precision, at half the size.

    Raises:
        NovaError: when it cannot be written.
    """
    header = {
        "nova_model": VERSION,
        "members": len(model.members),
        "hidden": model.hidden,
        "layers": model.layers,
        "features": {kind: list(names) for kind, names in _columns().items()},
        "metrics": list(METRICS),
        "kinds": list(model.kinds),
        "crowd": model.crowd,
        "facts": dict(model.facts or {}),
    }
    arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    for name in shapes(model.hidden, model.layers):
        both = np.stack([member[name] for member in model.members])
        arrays[name] = both.astype(np.float16 if half else np.float32)
    for kind in _columns():
        arrays[f"centre.{kind}"] = model.scale.centre[kind].astype(np.float32)
        arrays[f"spread.{kind}"] = model.scale.spread[kind].astype(np.float32)
        arrays[f"least.{kind}"] = model.scale.least[kind].astype(np.float32)
        arrays[f"greatest.{kind}"] = model.scale.greatest[kind].astype(np.float32)
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def load_model(path: str | os.PathLike[str] | None = None) -> Model:
    """Read a model.

    Args:
        path: a file; None for the one that comes with Nova.

    Raises:
        ModelError: for a file that is missing, damaged or of another version, naming the file and
            what is wrong.
    """
    path = Path(SHIPPED if path is None else path)
    content = read_bytes(path, ModelError, _MOST_BYTES)
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            sizes = {one.filename: one.file_size for one in archive.infolist()}
            if len(sizes) != len(archive.infolist()) or sum(sizes.values()) > _MOST_BYTES:
                raise ModelError(f"{path}: damaged: larger than a model when unpacked")
            return _model(path, archive, sizes)
    except _DAMAGED as error:
        raise ModelError(
            f"{path}: damaged or no model: expected what `nova learn train` writes"
        ) from error


def _model(path: Path, archive: zipfile.ZipFile, sizes: Mapping[str, int]) -> Model:
    header = json.loads(_array(path, archive, "header", None).tobytes())
    if not isinstance(header, dict) or header.get("nova_model") != VERSION:
        version = header.get("nova_model") if isinstance(header, dict) else None
        raise ModelError(f"{path}: nova_model is {version!r}; this version of Nova reads {VERSION}")
    if unknown := sorted(header.keys() - _FIELDS):
        raise ModelError(f"{path}: header: {unknown[0]!r:.80} is no field of a model")
    expected = {kind: list(names) for kind, names in _columns().items()}
    if header.get("features") != expected or header.get("metrics") != list(METRICS):
        raise ModelError(f"{path}: made for other features or metrics; train it again")
    members = _whole(path, header, "members", _MOST_MEMBERS)
    hidden = _whole(path, header, "hidden", _MOST_HIDDEN)
    layers = _whole(path, header, "layers", _MOST_LAYERS)
    kinds = tuple(one for one in KINDS if one in header["kinds"])
    crowd, facts = header["crowd"], header.get("facts")
    if not isinstance(crowd, int) or crowd < 0:
        raise ModelError(f"{path}: crowd is {crowd!r}; expected a whole number")
    arrays = {
        name: _array(path, archive, name, (members, *shape))
        for name, shape in shapes(hidden, layers).items()
    }
    scale = Scale(
        *(
            {k: _array(path, archive, f"{part}.{k}", (len(n),)) for k, n in _columns().items()}
            for part in ("centre", "spread", "least", "greatest")
        )
    )
    if not all((one > 0).all() for one in scale.spread.values()):
        raise ModelError(f"{path}: damaged: a spread of features is not above 0")
    if not all((scale.least[kind] <= scale.greatest[kind]).all() for kind in scale.least):
        raise ModelError(f"{path}: damaged: a least value of features is above the greatest")
    return Model(
        [{name: one[number] for name, one in arrays.items()} for number in range(members)],
        hidden,
        layers,
        scale,
        kinds,
        facts if isinstance(facts, dict) else {},
        crowd,
    )


def _whole(path: Path, header: Mapping[str, Any], name: str, most: int) -> int:
    value = header.get(name)
    if not isinstance(value, int) or not 1 <= value <= most:
        raise ModelError(f"{path}: {name} is {value!r}; expected 1 to {most}")
    return value


def _array(
    path: Path, archive: zipfile.ZipFile, name: str, shape: tuple[int, ...] | None
) -> np.ndarray:
    """An array of the file, of this shape and finite; bytes where no shape is given.

    numpy's own reader would allocate whatever shape the file claims.
    """
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(version)
        stored, fortran, kind = np.lib.format.read_array_header_1_0(file)
        content = file.read()
    if shape is None:
        return np.frombuffer(content, np.uint8)
    if stored != shape or fortran or kind not in (np.dtype("<f2"), np.dtype("<f4")):
        raise ModelError(f"{path}: damaged: {name} is {kind} {stored}; expected floats {shape}")
    array = np.frombuffer(content, kind).reshape(shape).astype(np.float32)
    if not np.isfinite(array).all():
        raise ModelError(f"{path}: damaged: {name} holds NaN or infinity")
    return array


def rows_of(predictions: Predictions, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Predictions per query, for JSON.

    Args:
        predictions: of the queries.
        names: of the queries.

    Yields:
        ``query``, and per metric ``value``, ``low`` and ``high``; of classes ``probability``, its
        ``low`` and ``high``, and the majority vote (``holds``).
    """
    for number, name in enumerate(names):
        row: dict[str, Any] = {"query": name}
        for metric in METRICS:
            low, high = (float(side[number]) for side in predictions.spread(metric))
            value = float(predictions.value(metric)[number])
            if metric in REGRESSIONS:
                row[metric] = {"value": value, "low": low, "high": high}
            else:
                holds = bool(predictions.holds(metric)[number])
                row[metric] = {"probability": value, "low": low, "high": high, "holds": holds}
        yield row
