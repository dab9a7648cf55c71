"""Training learns what can be learnt, goes on where it was stopped, and is evaluated honestly."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from learnable_traces import write_learnable
from needs import skip_or_fail

from nova_core.errors import NovaError
from nova_research.costream.learned.model import Model, load_model, write_model
from nova_research.costream.learned.network import CLASSES, METRICS, REGRESSIONS
from nova_research.costream.training.commands import learn
from nova_research.costream.training.dataset import Dataset, part_of, read_dataset, rows_for
from nova_research.costream.training.evaluate import (
    balanced_accuracy,
    noise,
    predicted,
    q_errors,
    report,
    scores,
    window_class,
)
from nova_research.costream.training.traces import read_traces, write_traces

os.environ.setdefault("JAX_PLATFORMS", "cpu")
try:
    from nova_research.costream.training.baselines import VECTORS, Trees
    from nova_research.costream.training.train import Settings, train
except ModuleNotFoundError:
    MISSING = "jax, optax or lightgbm is not installed (pip install 'nova-research[learn]')"
else:
    MISSING = ""

QUICK = {"hidden": 16, "members": 1, "epochs": 60, "patience": 60, "batch": 32, "rate": 5e-3}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces")
    write_learnable(path, 70)
    return path


@pytest.fixture(scope="module")
def dataset(traces: Path) -> Dataset:
    return read_dataset([traces])


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> Model:
    if MISSING:
        skip_or_fail(MISSING)
    return train(dataset, Settings(**QUICK))


def constant(data: Dataset, test: Dataset) -> dict[str, np.ndarray]:
    """The best guess that knows no features: the median of the training."""
    found = {metric: np.full(len(test), np.nanmedian(data.labels[metric])) for metric in METRICS}
    assert set(found) == set(METRICS)
    return found


def test_it_learns(dataset: Dataset, model: Model) -> None:
    data, test = (dataset.take(rows_for(dataset, part)) for part in ("train", "test"))
    assert set(data.queries).isdisjoint(test.queries)
    found = scores(predicted(model, test), test)
    guessed = scores(constant(data, test), test)
    for metric in REGRESSIONS:
        assert found[metric]["q50"] - 1 < 0.6 * (guessed[metric]["q50"] - 1), metric
    assert found["back_pressure"]["accuracy"] > 0.8
    assert model.kinds == ("source", "filter", "aggregate", "join", "sink")
    assert model.facts is not None and model.facts["stages"] == ["simulator"]


def test_trees_learn_it_too(dataset: Dataset) -> None:
    if MISSING:
        skip_or_fail(MISSING)
    parts = {p: dataset.take(rows_for(dataset, p)) for p in ("train", "validation", "test")}
    found = {}
    for vector in VECTORS:
        trees = Trees.trained(vector, parts["train"], parts["validation"])
        found[vector] = scores(trees.values(parts["test"]), parts["test"])
    for metric in REGRESSIONS:
        assert found["pooled"][metric]["q50"] < found["flat"][metric]["q50"]


def test_it_goes_on_where_it_was_stopped(dataset: Dataset, tmp_path: Path) -> None:
    if MISSING:
        skip_or_fail(MISSING)
    from nova_research.costream.training.train import Settings, train

    few = Settings(hidden=8, members=2, epochs=3, batch=32)
    whole = train(dataset, few)
    told: list[str] = []

    class StoppedError(Exception):
        pass

    def stop(text: str) -> None:
        told.append(text)
        if len(told) == 4:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(dataset, few, work=tmp_path / "work", say=stop)
    told.clear()
    again = train(dataset, few, work=tmp_path / "work", say=told.append)
    assert len(told) == 2  # of six epochs, four were done
    assert again.digest == whole.digest, "one seed gives one model, also in two runs"
    with pytest.raises(NovaError, match="a checkpoint of other settings"):
        train(dataset, Settings(hidden=8, members=2, epochs=5, batch=32), work=tmp_path / "work")


def test_the_rack_comes_after_the_simulator(traces: Path, tmp_path: Path) -> None:
    if MISSING:
        skip_or_fail(MISSING)
    from nova_research.costream.training.train import Settings, train

    write_learnable(tmp_path / "rack", 30, origin="rack", seed=1)
    both = read_dataset([traces, tmp_path / "rack"])
    told: list[str] = []
    found = train(both, Settings(hidden=8, members=1, epochs=2, batch=32), say=told.append)
    assert [text.split(", ")[1] for text in told] == ["simulator"] * 2 + ["rack"] * 2
    assert found.facts is not None and set(found.facts["traces"]) == {"simulator", "rack"}
    with pytest.raises(NovaError, match="no trace of origin rack to train with"):
        train(read_dataset([traces]), Settings(epochs=1), stages=("rack",))


def test_training_that_diverges_ends(dataset: Dataset) -> None:
    if MISSING:
        skip_or_fail(MISSING)
    with pytest.raises(NovaError, match="no finite loss after epoch 1; a lower --rate may help"):
        train(dataset, Settings(**QUICK | {"rate": 1e30}))


def test_a_model_is_trained_further(dataset: Dataset, traces: Path, tmp_path: Path) -> None:
    if MISSING:
        skip_or_fail(MISSING)
    few = Settings(hidden=8, members=2, epochs=2, batch=32)
    first = train(dataset, few)
    write_model(first, tmp_path / "m.npz", half=False)
    line = ["train", str(traces), "-o", str(tmp_path / "n.npz"), "--epochs", "1", "--hidden", "99"]
    done = CliRunner().invoke(learn, [*line, "--begin", str(tmp_path / "m.npz")])
    assert done.exit_code == 0, done.output
    further = load_model(tmp_path / "n.npz")
    assert (further.hidden, len(further.members)) == (8, 2)
    assert further.facts is not None and further.facts["begin"]["traces"] == first.facts["traces"]
    changes = [
        np.abs(further.members[0][name] - one).max() for name, one in first.members[0].items()
    ]
    assert 0 < max(changes) < 0.1
    again = train(dataset, few, begin=first, work=tmp_path / "work")
    with pytest.raises(NovaError, match="a checkpoint of other settings"):
        train(dataset, few, begin=again, work=tmp_path / "work")


def test_every_query_is_predicted_by_a_model_that_has_not_seen_it(
    dataset: Dataset, traces: Path, tmp_path: Path, model: Model
) -> None:
    from nova_research.costream.training.validate import validate

    found = validate(dataset, Settings(**QUICK | {"epochs": 5}), splits=2, shares=[0.5, 1.0])
    expected = rows_for(dataset, "test", 0) | rows_for(dataset, "test", 1)
    assert sorted(found.tests.ids.tolist()) == sorted(dataset.ids[expected].tolist())
    assert 0.3 < found.traces["50 %"] / found.traces["100 %"] < 0.7
    # The model of the first split is the one that training alone gives.
    alone = predicted(train(dataset, Settings(**QUICK | {"epochs": 5})), dataset)
    first = rows_for(found.tests, "test", 0)
    of_all = {str(name): row for row, name in enumerate(dataset.ids)}
    rows = [of_all[str(name)] for name in found.tests.ids[first]]
    for metric in METRICS:
        assert found.values["100 %"][metric][first] == pytest.approx(alone[metric][rows], rel=1e-4)
    write_model(model, tmp_path / "m.npz")
    line = ["validate", str(traces), "--begin", str(tmp_path / "m.npz"), "--splits", "1"]
    words = ["--share", "0.2", "--share", "1", "--epochs", "1", "--baselines", "--json"]
    done = CliRunner().invoke(learn, [*line, *words, "-o", str(tmp_path / "curve.svg")])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert set(answer["trained_with"]) == {"20 %", "100 %", "not trained further"}
    names = {row["predictor"] for row in answer["rows"]}
    assert names == {*answer["trained_with"], "flat", "pooled", "noise"}
    assert "traces trained with" in (tmp_path / "curve.svg").read_text()
    done = CliRunner().invoke(learn, [*line, "-o", str(tmp_path / "curve.pdf")])
    assert "a plot is a .png or .svg file" in str(done.exception)


def test_measured_selectivities_count(traces: Path, dataset: Dataset) -> None:
    measured = read_dataset([traces], measured=True)
    changed = [
        not np.array_equal(one.table, other.table)
        for one, other in zip(dataset.graphs, measured.graphs, strict=True)
    ]
    assert all(changed)


def test_queries_are_split_by_their_name() -> None:
    parts = [part_of(f"q{number}") for number in range(2000)]
    assert 0.76 < parts.count("train") / 2000 < 0.84
    assert 0.07 < parts.count("test") / 2000 < 0.13
    assert parts != [part_of(f"q{number}", 1) for number in range(2000)]


def test_scores_are_what_they_say() -> None:
    assert q_errors("throughput", np.array([2.0, 1, 0]), np.array([1.0, 2, 0.5])) == pytest.approx(
        [2, 2, 500]
    )
    right = np.array([1.0, 1, 1, 0])
    assert balanced_accuracy(np.array([True, True, True, True]), right) == 0.5
    assert balanced_accuracy(right > 0, right) == 1
    assert np.isnan(balanced_accuracy(np.array([True]), np.array([1.0])))
    assert [window_class(one) for one in (0, 0.5, 1, 3, 60)] == [
        *("no window", "up to 1 s", "up to 1 s", "up to 4 s", "longer")
    ]


def test_noise_is_that_of_repeated_runs(dataset: Dataset) -> None:
    found = noise(dataset)
    repeats = (dataset.repeat_of != "").sum()
    assert found["success"] == {"count": repeats, "accuracy": pytest.approx(1)} or (
        found["success"]["count"] == repeats
    )
    for metric in REGRESSIONS:
        assert found[metric]["q50"] == pytest.approx(1.1)
    rows = report({"right": {m: np.nan_to_num(v) for m, v in dataset.labels.items()}}, dataset)
    right = [row for row in rows if row["predictor"] == "right" and row["by"] == "all"]
    assert len(right) == 1
    for metric in METRICS:
        ideal = right[0]["scores"][metric]
        assert ideal["accuracy" if metric in CLASSES else "q95"] == 1


def test_commands(traces: Path, tmp_path: Path) -> None:
    if MISSING:
        skip_or_fail(MISSING)
    output = tmp_path / "model.npz"
    line = ["train", str(traces), "-o", str(output), "--hidden", "8", "--epochs", "2"]
    done = CliRunner().invoke(learn, [*line, "--members", "1", "--split", "3"])
    assert done.exit_code == 0, done.output
    assert "epoch 2" in done.stderr
    assert load_model(output).hidden == 8
    done = CliRunner().invoke(
        learn, ["evaluate", str(output), str(traces), "--baselines", "--json"]
    )
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert {row["predictor"] for row in answer["rows"]} == {"model", "flat", "pooled", "noise"}
    test = read_dataset([traces])
    assert answer["traces"] == rows_for(test, "test", 3).sum()
    done = CliRunner().invoke(learn, ["evaluate", str(output), str(traces)])
    assert "two-way-agg: model" in done.stdout
    rows = read_traces([traces])
    train_only = rows.filter(pa.array(~rows_for(test, "test", 3)))
    write_traces(tmp_path / "t.parquet", train_only)
    done = CliRunner().invoke(learn, ["evaluate", str(output), str(tmp_path / "t.parquet")])
    assert "none is of a query kept for tests" in str(done.exception)


def test_what_holds_no_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.parquet").write_text("no")
    done = CliRunner().invoke(
        learn, ["train", str(tmp_path / "none.parquet"), "-o", str(tmp_path / "m.npz")]
    )
    assert isinstance(done.exception, NovaError)
    assert "none.parquet" in str(done.exception)
