"""Parameters of a strategy as people write them: by name, as texts or values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import msgspec

from nova_core.errors import ProblemError
from nova_core.strategies.base import load, require_known


def takes(strategy: str, parameter: str) -> bool:
    """Whether a strategy has a parameter of that name."""
    return any(field.name == parameter for field in fields(load(strategy).Parameters))


def typed_parameters(strategy: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values, or texts that mean them, as the types that a strategy declares.

    Args:
        strategy: its name.
        values: by the parameter's name.

    Raises:
        ProblemError: for an unknown parameter, or a value of the wrong type.
    """
    require_known(strategy, values)
    types, typed = get_type_hints(load(strategy).Parameters), {}
    for key, value in values.items():
        try:
            typed[key] = msgspec.convert(value, types[key], strict=False)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # halves of surrogate pairs
            text = f"strategy {strategy}: {key}={value!s:.80}: {error!s:.200}"
            raise ProblemError(text) from error
    return typed
