"""Parameters of strategies as people write them."""

from __future__ import annotations

import pytest

from nova_core.errors import ProblemError
from nova_core.io.examples import load_example
from nova_core.strategies import place
from nova_core.strategies.parameters import takes, typed_parameters


def test_texts_and_values_become_what_is_declared() -> None:
    values = {"sigma": "0.25", "refine": "false", "c_min": 3}
    assert typed_parameters("nova", values) == {"sigma": 0.25, "refine": False, "c_min": 3.0}
    assert typed_parameters("nova", {"sigma": None}) == {"sigma": None}


@pytest.mark.parametrize(
    ("strategy", "values", "said"),
    [
        ("nova", {"sigme": 1}, "unknown parameter 'sigme'; it takes "),
        ("nova", {"sigma": "much"}, "strategy nova: sigma=much: Expected `float"),
        ("nova", {"sigma": "\udcff"}, "strategy nova: sigma=\udcff: 'utf-8'"),
        ("nova", {"sigma": "x" * 100_000}, f"strategy nova: sigma={'x' * 80}: Expected `float"),
        ("sink", {"sigma": 1}, "unknown parameter 'sigma'; it takes no parameters"),
        ("nix", {}, "installed are nova"),
    ],
)
def test_others_are_refused(strategy: str, values: dict[str, object], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        typed_parameters(strategy, values)
    assert said in str(caught.value)


def test_annealing_halves_no_temperature_for_ever() -> None:
    """Numbers too large for an array ended the service's child, or took all memory."""
    problem = load_example("running-example")
    for temperatures in (2**31, 10**30):
        with pytest.raises(ProblemError, match=r"temperatures is .*; expected .*100"):
            place(problem, "whitewater-annealing", temperatures=temperatures)


def test_what_a_strategy_takes() -> None:
    assert takes("nova", "objective")
    assert not takes("sink", "objective")
