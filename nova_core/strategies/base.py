"""The interface every placement strategy has, and how strategies are found.

A strategy is a class with a ``name``, a frozen dataclass ``Parameters`` and a method ``place``. It
is registered under the entry-point group ``nova.strategies``, by this package or by anyone else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Protocol

from nova_core.errors import ProblemError
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem

GROUP = "nova.strategies"
MOST_SEED = 2**31 - 1  # what every library takes


class Strategy(Protocol):
    """A way to place joins.

    Attributes:
        name: what people select it by.
        Parameters: frozen dataclass with a default for every field, validated in ``__post_init__``
            (ProblemError for a value out of range).
        parameters: an instance of it.
    """

    name: ClassVar[str]
    Parameters: ClassVar[type[Any]]
    parameters: Any

    def __init__(self, parameters: Any = None) -> None: ...

    def place(self, problem: Problem) -> Plan:
        """Place every pair of the problem's join matrix.

        Raises:
            InfeasibleError: when the strategy keeps constraints and nothing fits.
        """
        ...


def _entry_points() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """Names of all installed strategies; ours first, in the order of the paper."""
    order = ["nova", "sink", "source", "top-c", "tree", "cl-sf", "cl-tree-sf"]
    return sorted(_entry_points(), key=lambda n: (order.index(n) if n in order else 99, n))


def load(name: str) -> type[Strategy]:
    """The strategy class of that name.

    Raises:
        ProblemError: for a name that is not installed.
    """
    found = _entry_points().get(name)
    if found is None:
        raise ProblemError(f"strategy: unknown {name!r}; installed are {', '.join(names())}")
    strategy: type[Strategy] = found.load()
    return strategy


def create(name: str, **parameters: Any) -> Strategy:
    """An instance of a strategy; parameters it does not know are refused.

    Raises:
        ProblemError: for an unknown strategy, an unknown parameter or a value out of range.
    """
    strategy = load(name)
    known = {f.name for f in fields(strategy.Parameters)}
    unknown = sorted(set(parameters) - known)
    if unknown:
        takes = f"takes {', '.join(sorted(known))}" if known else "takes no parameters"
        raise ProblemError(f"strategy {name}: unknown parameter {unknown[0]!r}; it {takes}")
    seed = parameters.get("seed", 0)
    if isinstance(seed, int) and not 0 <= seed <= MOST_SEED:
        raise ProblemError(f"strategy {name}: seed is {seed}; expected 0 to {MOST_SEED}")
    return strategy(strategy.Parameters(**parameters))


def place(problem: Problem, strategy: str = "nova", **parameters: Any) -> Plan:
    """Place a problem with a strategy by name, e.g. ``place(problem, "nova", sigma=0.4)``."""
    return create(strategy, **parameters).place(problem)


def parameter_dict(parameters: Any) -> dict[str, Any]:
    """Parameters as they are written into a plan."""
    return {f.name: getattr(parameters, f.name) for f in fields(parameters)}
