"""`nova tour`."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_shows_the_papers_example_and_draws_it(nova, tmp_path: Path) -> None:
    result = nova("tour")
    assert result.exit_code == 0
    out = result.stdout
    assert "running example" in out
    assert "What was decided" in out
    assert "- cut because" in out
    assert "\nsink " in out
    assert "The plan keeps all" in out
    assert str(tmp_path / "nova-tour.png") in result.stderr
    assert (tmp_path / "nova-tour.png").stat().st_size > 10_000


def test_places_it_as_the_paper_does(ask) -> None:
    """Region 1 on A, and cut over B and C; Region 2 on G (paper, section 3.4)."""
    answer = ask("tour", "--no-picture")
    where: dict[str, set[str]] = {}
    for row in answer["decisions"]:
        where.setdefault(row["operator"].partition("/")[2], set()).add(row["node"])
    assert where == {"t1*w1": {"A"}, "t2*w1": {"B", "C"}, "t3*w2": {"G"}, "t4*w2": {"G"}}
    assert answer["written"] is None
    assert answer["evaluation"]["load"]["overloaded_count"] == 0


def test_the_picture_can_go_elsewhere_or_nowhere(nova, refused, tmp_path: Path) -> None:
    assert nova("tour", "-o", tmp_path / "x.svg").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]
    assert nova("tour", "--no-picture").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]
    assert ".png or .svg" in refused("tour", "-o", tmp_path / "x.gif")
    assert "nix" in refused("tour", "-o", tmp_path / "nix" / "x.png")
