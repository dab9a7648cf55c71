"""`nova predict`, and what `nova compare` says of predictions."""

from __future__ import annotations

from pathlib import Path

import pytest
from learned_models import random_model

from nova_research.costream.learned.model import write_model
from nova_research.costream.learned.network import CLASSES, METRICS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.npz"
    write_model(random_model(), path)
    return path


def test_the_command_has_help_and_json(nova) -> None:
    result = nova("predict", "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: nova predict ")
    assert "--json" in result.stdout


def test_every_pair_has_its_predictions(nova, ask, problem: Path, plan: Path, model: Path) -> None:
    answer = ask("predict", plan, "-p", problem, "--model", model)
    rows = answer["predictions"]
    assert [row["query"] for row in rows] == ["tw/n1*nw", "tw/n2*nw", "tw/s1*sw"]
    for row in rows:
        assert set(row) == {"query", *METRICS}
        assert all(isinstance(row[metric]["holds"], bool) for metric in CLASSES)
    result = nova("predict", plan, "-p", problem, "--model", model, "--rows", "1")
    assert result.exit_code == 0, result.output
    assert "tw/n1*nw" in result.stdout and "2 more rows" in result.stdout


def test_compare_predicts_beside_estimates(nova, ask, problem: Path, model: Path) -> None:
    answer = ask("compare", problem, "sink", "source", "--model", model)
    for one in answer["strategies"].values():
        assert one["predicted"]["queries"] == 3
        assert 0 <= one["predicted"]["back_pressure"] <= 3
    assert "What is predicted" in nova("compare", problem, "sink", "--model", model).stdout


def test_bad_models_are_refused(refused, problem: Path, plan: Path, tmp_path: Path) -> None:
    assert "none.npz" in refused("predict", plan, "-p", problem, "--model", tmp_path / "none.npz")
    assert "no model" in refused("predict", plan, "-p", problem, "--model", problem)
    assert "no model" in refused("compare", problem, "sink", "--model", problem)


def test_what_the_model_has_not_been_trained_for_is_named(
    nova, ask, problem: Path, plan: Path
) -> None:
    """Joins are cut here; the model that comes with Nova knows only whole ones."""
    predicted = nova("predict", plan, "-p", problem)
    assert "has not been trained with such values of" in predicted.stderr
    assert "join share" in predicted.stderr
    compared = nova("compare", problem, "nova")
    assert "predictions are left out: the model that comes with Nova" in compared.stderr
    assert "What is predicted" not in compared.stdout
    assert "predicted" not in ask("compare", problem, "nova")["strategies"]["nova"]
    assert "predicted" in ask("compare", problem, "sink")["strategies"]["sink"]
