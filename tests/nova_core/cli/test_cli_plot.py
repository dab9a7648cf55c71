"""`nova plot`, and the pictures of `nova_core.plotting`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from nova_core.io.files import read_plan, read_problem
from nova_core.plotting import draw
from nova_core.strategies import place
from nova_workloads.topology import generate


def texts(figure) -> list[str]:
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_png_of_a_plan(nova, ask, problem: Path, plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    result = nova("plot", plan, "--problem", problem, "-o", path)
    assert result.exit_code == 0
    assert str(path) in result.stderr
    image = imread(path)
    assert image.shape[0] > 600
    assert np.ptp(image) > 0.5  # not blank
    answer = ask("plot", plan, "-p", problem, "-o", path)
    assert answer["strategy"] == "nova"
    assert answer["written"] == str(path)


def test_svg_is_valid_and_the_same_each_time(nova, problem: Path, plan: Path, tmp_path) -> None:
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        assert nova("plot", plan, "-p", problem, "-o", path).exit_code == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert ElementTree.parse(paths[0]).getroot().tag.endswith("svg")


def test_a_problem_alone(nova, problem: Path, tmp_path: Path) -> None:
    assert nova("plot", problem, "-o", tmp_path / "p.png").exit_code == 0
    said = texts(draw(read_problem(problem)))
    assert {"source", "sink", "A", "cloud", r"[red]\$G\$"} <= set(said)
    assert not any("virtual" in text for text in said)


def test_small_plots_name_nodes_with_their_load(problem: Path, plan: Path) -> None:
    asked = read_problem(problem)
    said = texts(draw(asked, read_plan(plan, asked)))
    assert "A  50 / 55" in said
    assert any(text.startswith("tw/n2*nw on ") for text in said)
    assert "virtual position (ideal)" in said


def test_overload_and_relays_are_drawn(problem: Path) -> None:
    asked = read_problem(problem)
    for strategy in ("sink", "tree"):
        said = texts(draw(asked, place(asked, strategy)))
        assert "overloaded" in said
        assert any("(may overload)" in text for text in said)


def test_large_plots_say_that_they_show_a_sample() -> None:
    problem = generate(4_000, seed=1)
    plan = place(problem, "nova")
    said = texts(draw(problem, plan))
    assert any(f"400 of {len(plan.instances):,} instances" in text for text in said)
    assert "nodes that run replicas, %" in said
    assert "nodes per cell" in texts(draw(problem))


@pytest.mark.parametrize("dimensions", [1, 3, 5])
@pytest.mark.parametrize("count", [30, 300])
def test_any_number_of_dimensions(count: int, dimensions: int) -> None:
    from dataclasses import replace

    problem = generate(count, seed=2)
    position = np.random.default_rng(0).normal(size=(count, dimensions)) * 30
    problem = replace(problem, nodes=replace(problem.nodes, position=position))
    figure = draw(problem, place(problem, "nova"))
    figure.draw_without_rendering()
    principal = any("principal axis" in text for text in texts(figure))
    assert principal == (dimensions > 2)


def test_degenerate_positions(problem: Path) -> None:
    """All nodes on one spot, and nodes without capacity, still make a plot."""
    from dataclasses import replace

    asked = read_problem(problem)
    position = np.zeros_like(asked.nodes.position)
    one_spot = replace(asked, nodes=replace(asked.nodes, position=position))
    draw(one_spot, place(one_spot, "sink")).draw_without_rendering()
    nothing = asked.with_capacity(np.zeros(len(asked.nodes)))
    draw(nothing, place(nothing, "sink")).draw_without_rendering()


def test_bad_input_is_refused(
    refused: Callable[..., str], problem: Path, plan: Path, tmp_path: Path
) -> None:
    assert ".png or .svg" in refused("plot", plan, "-p", problem, "-o", tmp_path / "x.gif")
    assert "--output" in refused("plot", plan, "-p", problem)
    assert "nix" in refused("plot", plan, "-p", problem, "-o", tmp_path / "nix" / "x.png")
    assert "plan.json" in refused("plot", plan, "-o", tmp_path / "x.png")
    assert "nix.json" in refused("plot", tmp_path / "nix.json", "-p", problem, "-o", "x.png")
