"""Numbers that options take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from nova_core.numbers import SEED


@pytest.mark.parametrize("value", ["nan", "-nan", "NaN"])
def test_nan_is_no_number_between_bounds(
    nova: Callable[..., Result], tmp_path: Path, value: str
) -> None:
    latencies = tmp_path / "pairs.csv"
    latencies.write_text("source,target,latency\na,b,1\nb,c,2\na,c,2\n")
    output = tmp_path / "space.csv"
    result = nova("topology", "embed", latencies, "-o", output, f"--near={value}")
    assert result.exit_code == 2
    assert "is no number" in result.stderr
    assert not output.exists()


def test_seeds_are_what_every_library_takes() -> None:
    from fuzz.uses import commands

    seeds = {
        name: option.type
        for name, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and option.name == "seed"
    }
    assert len(seeds) > 8
    assert {name for name, kind in seeds.items() if kind is not SEED} == set()


def test_whole_numbers_have_a_greatest() -> None:
    from fuzz.uses import commands

    unlimited = [
        f"{name} --{option.name}"
        for name, command in commands()
        for option in command.params
        if isinstance(option.type, click.types.IntParamType)
        and getattr(option.type, "max", None) is None
    ]
    assert unlimited == []
