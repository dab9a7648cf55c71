"""Training of ensembles with jax: on simulated traces, then on those of the rack.

The loss of regressions is a pseudo-Huber loss of the error log10(1 + p) - log10(1 + t), that of
classes the cross-entropy with equal weights of both; losses of all metrics add up, as one trunk
serves all. The authors' code squares the error. Then few traces that are off by orders of magnitude
decide, and medians of q-errors are worse (docs/strategies.md).
One seed gives one model on one machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from nova_core.errors import NovaError
from nova_research.costream.learned.features import FEATURES, HOST, KINDS
from nova_research.costream.learned.graph import Batch, Group, Layout, layout_of, stack
from nova_research.costream.learned.model import Model, Scale
from nova_research.costream.learned.network import (
    CLASSES,
    METRICS,
    REGRESSIONS,
    forward,
    initial,
    on_hosts,
)
from nova_research.costream.training.dataset import Dataset, rows_for

STAGES = ("simulator", "rack")
TUNING_RATE, TUNING_DECAY = 0.1, 0.05
"""Shares of learning rate and decay in the second stage. With a third of the rate and all of the
decay, a few hundred traces undo what tens of thousands have taught."""
HUBER_DELTA = 0.05
"""Errors well below it count by their square, those well above it as they are."""


@dataclass(frozen=True)
class Settings:
    """How a model is trained.

    Attributes:
        hidden: width of states.
        layers: of updates, see `network.shapes`.
        members: of the ensemble.
        epochs: at most, per stage.
        patience: epochs without a better validation loss before a stage ends.
        batch: graphs per step.
        rate: initial learning rate; it falls to a twentieth along a cosine.
        decay: of weights (AdamW). Of rate and decay, the second stage takes `TUNING_RATE` and
            `TUNING_DECAY`.
        seed: of everything random.
        split: seed of the split of queries.
        share: of the queries to train with, for learning curves.
    """

    hidden: int = 64
    layers: int = 1
    members: int = 3
    epochs: int = 200
    patience: int = 20
    batch: int = 128
    rate: float = 3e-3
    decay: float = 0.4
    seed: int = 0
    split: int = 0
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class Arrays:
    """A dataset as arrays of one layout.

    Attributes:
        layout: of all datasets of a training.
        batch: the measured queries, features scaled.
        beside: layout and batch of the operators that hosts run beside them.
        targets: (5, n) in the network's units: log10(1 + units), or 0 and 1; 0 where unknown.
        known: (5, n) 1 where there is a target.
    """

    layout: Layout
    batch: Batch
    beside: tuple[Layout, Batch]
    targets: np.ndarray
    known: np.ndarray

    def __len__(self) -> int:
        return int(self.targets.shape[1])

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """Of measured queries, and of what hosts run beside them."""
        return self.layout, self.beside[0]

    def rows(self, rows: np.ndarray) -> tuple[Batch, Batch, np.ndarray, np.ndarray]:
        """Some graphs and their targets."""
        batches = _some(self.batch, rows), _some(self.beside[1], rows)
        return *batches, self.targets[:, rows], self.known[:, rows]


def _some(batch: Batch, rows: np.ndarray) -> Batch:
    return Batch(
        tuple(one[:, rows] for one in batch.features),
        tuple(one[rows] for one in batch.inputs),
        batch.placement[rows],
        batch.hosts[rows],
    )


@dataclass(frozen=True)
class Places:
    """Places for all graphs of a training.

    Attributes:
        own: for operators of measured queries, see `layout_of`.
        beside: for operators that hosts run beside them.
        hosts: how many.
    """

    own: Mapping[Group, int]
    beside: Mapping[Group, int]
    hosts: int

    @classmethod
    def of(cls, datasets: Sequence[Dataset]) -> Places:
        """Places for these traces."""
        own = layout_of([part for one in datasets for part in one.parts()])
        beside = layout_of([rest for one in datasets for rest in one.rests()])
        hosts = max(len(graph.hosts) for one in datasets for graph in one.graphs)
        return cls(own, beside, hosts)


def train(
    dataset: Dataset,
    settings: Settings,
    *,
    begin: Model | None = None,
    stages: Sequence[str] = STAGES,
    work: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Model:
    """Train an ensemble.

    Args:
        dataset: all traces; queries for tests are skipped (`part_of`).
        settings: of the training.
        begin: model to train further: it gives the number of members, their size and the scale, and
            all stages take the second stage's rate and decay.
        stages: origins of the traces to learn from, one after the other; those that the dataset
            does not have are skipped.
        work: directory of checkpoints, from which the same command resumes.
        say: called with a line of text per epoch.

    Raises:
        NovaError: without traces to train or validate with, and for checkpoints of other settings.
    """
    parts = {part: dataset.take(rows_for(dataset, part, settings.split)) for part in
             ("train", "validation")}  # fmt: skip
    parts["train"] = _shortened(parts["train"], settings)
    used = [one for one in stages if (parts["train"].origin == one).any()]
    for one in used:
        if not (parts["validation"].origin == one).any():
            raise NovaError(f"no query of origin {one} to validate with; more queries are needed")
    if not used:
        raise NovaError(f"no trace of origin {' or '.join(stages)} to train with")
    learnt = parts["train"].take(np.isin(parts["train"].origin, used))
    if begin is not None:
        many, hidden, layers = len(begin.members), begin.hidden, begin.layers
        settings = replace(settings, members=many, hidden=hidden, layers=layers)
    scale = scale_of(learnt) if begin is None else begin.scale
    places = Places.of(list(parts.values()))
    data = {
        (part, origin): arrays_of(one.take(one.origin == origin), scale, places)
        for part, one in parts.items()
        for origin in used
    }
    members = []
    for member in range(settings.members):
        if begin is None:
            seed = settings.seed * 1000 + member
            parameters: Mapping[str, Any] = initial(settings.hidden, settings.layers, seed)
            parameters = _with_means(parameters, data["train", used[0]])
        else:
            parameters = begin.members[member]
        for number, origin in enumerate(used):
            tuning = number > 0 or begin is not None
            digest = "" if begin is None else begin.digest
            stage = _Stage(settings, member, origin, tuning, digest, work, say)
            parameters = stage.run(parameters, data["train", origin], data["validation", origin])
        members.append({name: np.asarray(one, np.float32) for name, one in parameters.items()})
    present = {KINDS[kind] for graph in learnt.graphs for kind in np.unique(graph.kind).tolist()}
    facts = {
        "settings": asdict(settings),
        "stages": used,
        "traces": {origin: int((learnt.origin == origin).sum()) for origin in used},
        "queries": len(np.unique(learnt.queries)),
    }
    crowd = max(int(np.bincount(graph.host).max()) for graph in learnt.graphs)
    if begin is not None:
        facts["begin"] = dict(begin.facts or {})
        present, crowd = present.union(begin.kinds), max(crowd, begin.crowd)
    kinds = tuple(one for one in KINDS if one in present)
    return Model(members, settings.hidden, settings.layers, scale, kinds, facts, crowd)


def _shortened(dataset: Dataset, settings: Settings) -> Dataset:
    if settings.share >= 1:
        return dataset
    names = np.unique(dataset.queries)
    np.random.default_rng(settings.seed).shuffle(names)
    return dataset.take(np.isin(dataset.queries, names[: max(1, int(settings.share * len(names)))]))


def scale_of(dataset: Dataset) -> Scale:
    """The scale of features, by all operators and hosts of some traces."""
    columns = {}
    for number, kind in enumerate(KINDS):
        rows = [graph.table[graph.kind == number] for graph in dataset.graphs]
        columns[kind] = np.concatenate(rows)[:, : len(FEATURES[kind])]
    columns["host"] = np.concatenate([graph.hosts for graph in dataset.graphs])
    assert columns["host"].shape[1] == len(HOST)
    return Scale.of(columns)


def arrays_of(dataset: Dataset, scale: Scale, places: Places) -> Arrays:
    """A dataset as arrays with these places."""
    count = len(dataset)
    targets = np.zeros((len(METRICS), count), np.float32)
    known = np.zeros_like(targets)
    for row, metric in enumerate(METRICS):
        targets[row], known[row] = dataset.target(metric)
    own = stack(dataset.parts(), places.own, places.hosts)
    rest = stack(dataset.rests(), places.beside, places.hosts)
    batch, beside = (scale.scaled(one.layout, one.batch) for one in (own, rest))
    # Nothing flows between them and the measured query.
    beside = beside._replace(inputs=())
    return Arrays(own.layout, batch, (rest.layout, beside), targets, known)


def _with_means(parameters: Mapping[str, Any], data: Arrays) -> dict[str, Any]:
    """Parameters that begin with the mean of every regression."""
    adjusted = dict(parameters)
    for row, metric in enumerate(METRICS):
        if metric in REGRESSIONS and data.known[row].any():
            last = max(n for n in parameters if n.startswith(f"read.{metric}.") and "bias" in n)
            mean = float((data.targets[row] * data.known[row]).sum() / data.known[row].sum())
            adjusted[last] = np.full_like(parameters[last], mean)
    return adjusted


def balance(data: Arrays) -> np.ndarray:
    """(5, 2) weights of rows whose target is 0 and 1: both classes count the same."""
    weights = np.ones((len(METRICS), 2), np.float32)
    for row, metric in enumerate(METRICS):
        if metric in CLASSES:
            labelled = data.known[row] > 0
            for value in (0, 1):
                share = (
                    float((data.targets[row][labelled] == value).mean()) if labelled.any() else 0.5
                )
                weights[row, value] = 0.5 / max(share, 0.02)
    return weights


def loss_of(
    parameters: Any,
    batch: Batch,
    beside: Batch,
    targets: Any,
    known: Any,
    weights: Any,
    *,
    layouts: tuple[Layout, Layout],
) -> Any:
    """Mean loss of all metrics (jax)."""
    layout, rest = layouts
    others = on_hosts(jnp, parameters, rest, beside) if rest else None
    outputs = forward(jnp, parameters, layout, batch, others)
    total = 0.0
    for row, metric in enumerate(METRICS):
        predicted, target = outputs[metric][0], targets[row]
        if metric in CLASSES:
            weight = known[row] * jnp.where(target > 0.5, weights[row, 1], weights[row, 0])
            one = jax.nn.softplus(predicted) - target * predicted
        else:
            weight = known[row]
            one = jnp.sqrt((predicted - target) ** 2 + HUBER_DELTA**2) - HUBER_DELTA
        total = total + (weight * one).sum() / jnp.maximum(weight.sum(), 1.0)
    return total


@cache
def _compiled(layouts: tuple[Layout, Layout], decay: float) -> tuple[Any, Any, Any]:
    """The optimizer's initial state, a step of AdamW and the loss, compiled for some layouts."""
    loss = partial(loss_of, layouts=layouts)
    adam = optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.add_decayed_weights(decay)
    )

    def step(parameters: Any, state: Any, batch: Any, weights: Any, rate: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(parameters, *batch, weights)
        change, state = adam.update(slope, state, parameters)
        moved = jax.tree.map(lambda one, by: one - rate * by, parameters, change)
        return moved, state, value

    return adam.init, jax.jit(step), jax.jit(loss)


@dataclass(frozen=True)
class _Stage:
    """One member's training on traces of one origin; `begin` is the digest of a model, if any."""

    settings: Settings
    member: int
    origin: str
    tuning: bool
    begin: str
    work: Path | None
    say: Callable[[str], None]

    def run(self, parameters: Mapping[str, Any], data: Arrays, validation: Arrays) -> Any:
        """The parameters with the least validation loss."""
        s = self.settings
        steps = -(-len(data) // s.batch)
        decay = s.decay * (TUNING_DECAY if self.tuning else 1)
        begin, step, measure = _compiled(data.layouts, decay)
        weights = balance(data)
        fresh = dict(parameters), begin(dict(parameters)), dict(parameters)
        epoch, least, since, (parameters, state, best) = self._resumed(data, fresh)
        while epoch < s.epochs and since < s.patience:
            random = np.random.default_rng([s.seed, self.member, STAGES.index(self.origin), epoch])
            # The first rows fill up the last step.
            order = np.resize(random.permutation(len(data)), (steps, s.batch))
            total = 0.0
            for number, rows in enumerate(order):
                rate = self._rate((epoch + number / steps) / s.epochs)
                parameters, state, value = step(parameters, state, data.rows(rows), weights, rate)
                total += float(value)
            validation_loss = self._validated(measure, parameters, validation, weights)
            if not math.isfinite(validation_loss):
                at = f"after epoch {epoch + 1}"
                raise NovaError(f"training: no finite loss {at}; a lower --rate may help")
            epoch, since = epoch + 1, since + 1
            if validation_loss < least:
                least, since, best = validation_loss, 0, parameters
            self._keep(data, epoch, least, since, (parameters, state, best))
            self.say(
                f"member {self.member + 1} of {s.members}, {self.origin}, epoch {epoch}: loss "
                f"{total / steps:.4f}, validation {validation_loss:.4f} (least {least:.4f})"
            )
        return best

    def _rate(self, completed: float) -> float:
        """The learning rate after a share of all epochs: a cosine down to a twentieth."""
        rate = self.settings.rate * (TUNING_RATE if self.tuning else 1)
        return rate * (0.05 + 0.95 * (1 + math.cos(math.pi * completed)) / 2)

    def _validated(self, measure: Any, parameters: Any, data: Arrays, weights: Any) -> float:
        """Mean loss of the validation traces, in batches of one size."""
        size = min(len(data), 8 * self.settings.batch)
        chunks = np.resize(np.arange(len(data)), (-(-len(data) // size), size))
        losses = [float(measure(parameters, *data.rows(rows), weights)) for rows in chunks]
        return sum(losses) / len(losses)

    # --- checkpoints ----------------------------------------------------------------------------

    def _path(self) -> Path | None:
        if self.work is None:
            return None
        return self.work / f"member-{self.member}-{self.origin}.npz"

    def _facts(self, data: Arrays) -> str:
        facts = {**asdict(self.settings), "tuning": self.tuning, "traces": len(data)}
        facts["begin"] = self.begin
        return json.dumps(facts, sort_keys=True)

    def _resumed(self, data: Arrays, state: Any) -> tuple[int, float, int, Any]:
        """Finished epochs, the least loss, epochs since then, and the state of the training."""
        path = self._path()
        if path is None or not path.is_file():
            return 0, np.inf, 0, state
        leaves, shape = jax.tree.flatten(state)
        try:
            with np.load(path, allow_pickle=False) as checkpoint:
                facts = str(checkpoint["facts"])
                stored = [checkpoint[f"leaf-{number}"] for number in range(len(leaves))]
                epoch, least, since = (
                    checkpoint[one].item() for one in ("epoch", "least", "since")
                )
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise NovaError(f"{path}: no checkpoint, or a damaged one; remove it") from error
        if facts != self._facts(data) or [np.shape(a) for a in stored] != [
            np.shape(a) for a in leaves
        ]:
            raise NovaError(f"{path}: a checkpoint of other settings; choose another --work")
        return int(epoch), float(least), int(since), jax.tree.unflatten(shape, stored)

    def _keep(self, data: Arrays, epoch: int, least: float, since: int, state: Any) -> None:
        path = self._path()
        if path is None:
            return
        from nova_core.io.safe_files import atomic_write, make_directory

        make_directory(path.parent)
        leaves: dict[str, Any] = {
            f"leaf-{n}": np.asarray(one) for n, one in enumerate(jax.tree.leaves(state))
        }
        with atomic_write(path) as file:
            np.savez(file, facts=self._facts(data), epoch=epoch, least=least, since=since, **leaves)
