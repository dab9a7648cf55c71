"""Parameters of strategies as people write them."""

from __future__ import annotations

import pytest

from nova_core.errors import ProblemError
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
        ("sink", {"sigma": 1}, "unknown parameter 'sigma'; it takes no parameters"),
        ("nix", {}, "installed are nova"),
    ],
)
def test_others_are_refused(strategy: str, values: dict[str, object], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        typed_parameters(strategy, values)
    assert said in str(caught.value)


def test_what_a_strategy_takes() -> None:
    assert takes("nova", "objective")
    assert not takes("sink", "objective")
