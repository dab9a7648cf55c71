"""The interface every placement strategy has, and how strategies are found.

A strategy is a class with a ``name``, a frozen dataclass ``Parameters`` and a method ``place``. It
is registered under the entry-point group ``nova.strategies``, by this package or by anyone else's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.extensions import Extensions
from nova_core.kernel_cache import prepare
from nova_core.model.expansion import graph_of
from nova_core.model.plan import Plan
from nova_core.model.problem import Ints, Problem
from nova_core.numbers import MOST_SEED

if TYPE_CHECKING:
    from nova_core.model.graph import Graph

RESOURCES = ("capacity", "worker", "requirement", "minimum-capacity", "link")
"""Constraints on nodes and links: what a strategy ignores that looks at latencies or rates only."""

FINITE, POSITIVE = sys.float_info.max, math.ulp(0.0)
"""Bounds of `check_range` for parameters that must not be infinite, or must be above 0."""
WHOLE = "a whole number >= 1"


@dataclass(frozen=True)
class NoParameters:
    """Nothing to choose."""


class Strategy:
    """A way to place; a subclass names itself and writes `place`.

    Attributes:
        name: what people select it by.
        objective: name of what it minimizes, as its plans have it.
        ignores: names of the constraints that it ignores and its plans may break.
        files: names of parameters that are files; requests to a service may not give them.
        Parameters: frozen dataclass with a default for every field, validated in ``__post_init__``
            (ProblemError for a value out of range).
        parameters: an instance of it.
    """

    name: ClassVar[str]
    objective: ClassVar[str] = "latency"
    ignores: ClassVar[tuple[str, ...]] = RESOURCES
    files: ClassVar[tuple[str, ...]] = ()
    Parameters: ClassVar[type[Any]] = NoParameters
    parameters: Any

    def __init__(self, parameters: Any = None) -> None:
        self.parameters = self.Parameters() if parameters is None else parameters

    def place(self, problem: Problem) -> Plan:
        """Place every operator: pairs of the problem's join matrix, or its queries'.

        `graph_of` describes both alike.

        Raises:
            ProblemError: for queries that do not fit the problem.
            InfeasibleError: when the strategy keeps constraints and nothing fits.
        """
        raise NotImplementedError

    def solve(self, problem: Problem) -> Plan:
        """Place, with compiled kernels at hand where that pays."""
        prepare(len(problem.nodes) + len(problem.matrix))
        return self.place(problem)

    def whole_plan(self, problem: Problem, hosts: Ints, **more: Any) -> Plan:
        """The plan that runs every operator uncut; queries stay as they are written.

        Args:
            problem: what is placed.
            hosts: (b,) node of each operator.
            more: attributes of `Plan` that add to, or replace, the strategy's own.
        """
        return Plan.whole(problem, hosts, self.name, **{**self._facts(), **more})

    def _facts(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "parameters": parameter_dict(self.parameters),
            "breaks": self.ignores,
        }


def check_range(
    where: str,
    parameters: object,
    names: str,
    low: float,
    high: float = FINITE,
    expected: str | None = None,
) -> None:
    """Refuse parameters out of range; None, which stands for a default, is accepted.

    Args:
        where: what errors begin with, such as ``nova:``.
        parameters: has the parameters as attributes.
        names: of the parameters, separated by spaces.
        low: least value.
        high: greatest value.
        expected: what would be accepted, in words; None derives it from the bounds.

    Raises:
        ProblemError: naming the parameter, its value and what is accepted.
    """
    for name in names.split():
        value = getattr(parameters, name)
        if value is not None and not low <= value <= high:
            shown = [f"{v:g}" if isinstance(v, float) else v for v in (value, low, high)]
            bounds = f"{shown[1]} or more" if high >= FINITE else f"{shown[1]} to {shown[2]}"
            raise ProblemError(f"{where} {name} is {shown[0]}; expected {expected or bounds}")


def check_choice(where: str, parameters: object, name: str, allowed: Iterable[str]) -> None:
    """Refuse a parameter whose value is not one of some names.

    Raises:
        ProblemError: naming the parameter, its value and what is accepted.
    """
    value, known = getattr(parameters, name), list(allowed)
    if value not in known:
        raise ProblemError(f"{where} {name} is {value!r}; expected one of {', '.join(known)}")


def able_workers(
    problem: Problem, owner: str, graph: Graph | None = None
) -> Iterator[tuple[Ints, Ints]]:
    """Operators with the same requirement on their hosts, and the workers that meet it.

    Args:
        problem: what is placed.
        owner: what errors begin with.
        graph: of the problem; None for that of its pairs, or of its queries as they are written.

    Yields:
        (k,) rows of `Graph.bodies` (of pairs, of the join matrix), and (h,) nodes.

    Raises:
        InfeasibleError: when no worker meets a requirement.
    """
    graph = graph_of(problem) if graph is None else graph
    of, what = graph.requirement[graph.bodies], "operators" if problem.queries else "joins"
    for requirement in np.unique(of).tolist():
        rows = np.flatnonzero(of == requirement)
        fit = problem.nodes.worker & graph.requirements.able(of[rows])
        if not fit.any():
            missing = float(graph.required[graph.bodies[rows]].sum())
            node = f"node {graph.requirements.text(requirement)}".strip()
            raise InfeasibleError(f"{owner}: no {node} may host {what}; make one a worker", missing)
        yield rows, np.flatnonzero(fit)


def _order(name: str) -> tuple[int, str]:
    """Ours come first, in the order of the paper."""
    ours = ["nova", "nova-paper", "sink", "source", "top-c", "tree", "cl-sf", "cl-tree-sf"]
    return (ours.index(name) if name in ours else len(ours)), name


_INSTALLED = Extensions("nova.strategies", "strategy", ProblemError, _order)


def names() -> list[str]:
    """Names of installed strategies."""
    return _INSTALLED.names()


def load(name: str) -> type[Strategy]:
    """The strategy class of that name.

    Raises:
        ProblemError: for a name that is not installed, or a package that cannot be loaded.
    """
    strategy: type[Strategy] = _INSTALLED.load(name)
    return strategy


def require_known(name: str, parameters: Iterable[str]) -> None:
    """Refuse names that are not parameters of a strategy.

    Raises:
        ProblemError: naming the first of them, and the strategy's parameters.
    """
    known = sorted(f.name for f in fields(load(name).Parameters))
    unknown = sorted(set(parameters).difference(known))
    if unknown:
        takes = f"takes {', '.join(known)}" if known else "takes no parameters"
        raise ProblemError(f"strategy {name}: unknown parameter {unknown[0]!r}; it {takes}")


def create(name: str, **parameters: Any) -> Strategy:
    """An instance of a strategy; parameters it does not know are refused.

    Raises:
        ProblemError: for an unknown strategy, an unknown parameter or a value out of range.
    """
    strategy = load(name)
    require_known(name, parameters)
    for file in strategy.files:
        if parameters.get(file) == "":
            raise ProblemError(f"strategy {name}: {file} is an empty path; name a file")
    seed = parameters.get("seed", 0)
    if isinstance(seed, int) and not 0 <= seed <= MOST_SEED:
        raise ProblemError(f"strategy {name}: seed is {seed}; expected 0 to {MOST_SEED}")
    return strategy(strategy.Parameters(**parameters))


def place(problem: Problem, strategy: str = "nova", **parameters: Any) -> Plan:
    """Place a problem with a strategy by name, e.g. ``place(problem, "nova", sigma=0.4)``."""
    return create(strategy, **parameters).solve(problem)


def parameter_dict(parameters: Any) -> dict[str, Any]:
    """Parameters as they are written into a plan."""
    return {f.name: getattr(parameters, f.name) for f in fields(parameters)}
