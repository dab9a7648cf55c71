"""Features of operators and hosts that are known before a run (Costream, Table I).

All are transferable: rates, widths and types in place of names. Amounts that span orders of
magnitude are decimal logarithms. Nova's windows are by time, so Costream's window policy is left
out; rates that follow from its selectivities are added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from msgspec import UNSET

from nova_core.io.binding import MILLISECONDS, Bound, bind, equal_columns
from nova_core.io.expressions import COMPARISONS, FUNCTIONS, TYPES, Call, Constant, Expression
from nova_core.model.graph import Operator
from nova_core.model.problem import Floats, Problem
from nova_core.model.queries import Aggregate, Filter, Join, LogicalOperator, inputs_of

KINDS = ("source", "filter", "aggregate", "join", "sink")
"""Types of operators the network knows; each has encoders and updates of its own."""

COMMON = ("values_in", "values_out", "bytes_in", "bytes_out", "rate_in", "rate_out")
PIECE = ("share", "selectivity")
WINDOW = ("window", "slide", "is_sliding", "has_window", "held")

OWN: Mapping[str, tuple[str, ...]] = {
    "source": tuple(f"values_{one}" for one in TYPES),
    "filter": (
        *PIECE,
        "comparisons",
        *(f"compares_{one}" for one in COMPARISONS),
        *(f"literal_{one}" for one in TYPES),
    ),
    "aggregate": (
        *PIECE,
        *WINDOW,
        "groups",
        *(f"computes_{one}" for one in FUNCTIONS),
        *(f"group_{one}" for one in TYPES),
        *(f"of_{one}" for one in TYPES),
    ),
    "join": (*PIECE, *WINDOW, "matches", "slower", *(f"key_{one}" for one in TYPES)),
    "sink": (),
}
FEATURES: Mapping[str, tuple[str, ...]] = {kind: (*COMMON, *OWN[kind]) for kind in KINDS}
"""Names of the features of each type of operator, in order."""

HOST = ("cpu", "memory", "latency", "bandwidth", "work", "sent", "held")
"""Features of a host: CPU (% of a core), RAM (MB), outgoing latency (ms) and bandwidth (Mbit/s).

Costream leaves it to the network to find out what the operators on a host ask of it together. Here
that is three features more: tuples/s received and emitted per core, data sent to other hosts in
% of the bandwidth, and data held in windows in % of the RAM.
"""

# Defaults for values that a problem lacks: of hosts and links, the columns of a stream, and the
# window of a pair's join, which is that of bundles.
CORES, MEMORY, MBIT = 1.0, 1024.0**3, 1000.0
COLUMNS = ("int", "float", "float", "text")
PAIR_WINDOW_S = 1.0
_BYTES = {"int": 8.0, "float": 8.0, "text": 16.0}
_TIME_BYTES = 8.0
_LEAST = 1e-9


def log(value: float) -> float:
    """log10(1 + value), of amounts that may be 0."""
    return math.log10(1.0 + max(value, 0.0))


def ratio(part: float, whole: float) -> float:
    """log10 of a share of at least 1e-9; 0 if the whole is 0."""
    return math.log10(max(part / whole, _LEAST)) if whole > 0 else 0.0


@dataclass(frozen=True)
class Flow:
    """Rates of one piece of an operator, estimated or measured.

    Attributes:
        inputs: tuples/s of the left, or only, and the right input.
        output: tuples/s.
        share: part of its operator's input, 0 to 1.
    """

    inputs: tuple[float, float]
    output: float
    share: float = 1.0


@dataclass
class Description:
    """An operator's features that do not depend on rates, and the width of its tuples.

    Attributes:
        values: columns of a tuple it emits.
        size: bytes of a tuple it emits.
        own: features that do not depend on rates, by name.
        window: length and slide, s; None if unknown.
        groups: results of an aggregate per window.
    """

    values: float
    size: float
    own: dict[str, float] = field(default_factory=dict)
    window: tuple[float, float] | None = None
    groups: float = 1.0


class Descriptions:
    """Descriptions of a problem's operators, read once for any number of plans."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._bound: list[dict[str, Bound]] = []
        self._operators: list[dict[str, LogicalOperator]] = []
        for query in problem.queries:
            self._bound.append(bind(query, problem) if problem.streams else {})
            self._operators.append({one.id: one for one in query.operators})
        self._row = {str(name): row for row, name in enumerate(problem.sources.ids)}

    def source(self, operator: Operator) -> Description:
        """A source: how many columns of which type, and bytes of a tuple."""
        sources, row = self._problem.sources, self._row[operator.id]
        stream = str(sources.stream[row])
        declared = next((one for one in self._problem.streams if one.id == stream), None)
        types = list(COLUMNS if declared is None else declared.columns.values())
        size = math.nan if sources.tuple_bytes is None else float(sources.tuple_bytes[row])
        if not size > 0:  # unknown is NaN
            size = _TIME_BYTES + sum(_BYTES[one] for one in types)
        own = {f"values_{one}": float(types.count(one)) for one in TYPES}
        return Description(float(len(types)), size, own)

    def operator(self, operator: Operator, inputs: list[Description]) -> Description:
        """A filter, projection, aggregate or join, from its inputs.

        Args:
            operator: of the physical graph.
            inputs: descriptions of its producers; of a join the left and the right one.
        """
        values = sum(one.values for one in inputs)
        size = sum(one.size for one in inputs)
        if operator.kind != "join":
            values, size = values / len(inputs), size / len(inputs)
        if not operator.logical:  # a pair of a join matrix, or what only passes tuples on
            if operator.kind == "join":
                window = PAIR_WINDOW_S, PAIR_WINDOW_S
                return Description(values, size, {"key_int": 1.0}, window)
            return Description(values, size)
        logical = self._operators[operator.query][operator.logical]
        bound = self._bound[operator.query].get(operator.logical)
        description = Description(values, size)
        if isinstance(logical, Filter):
            description.own = _condition(None if bound is None else bound.condition)
        elif isinstance(logical, Aggregate | Join):
            if logical.window is not UNSET:
                length = float(logical.window)
                slide = length if logical.slide is UNSET else float(logical.slide)
                description.window = (length, slide)
            if isinstance(logical, Aggregate):
                description.groups = float(logical.groups)
                description.own = {} if bound is None else _computed(bound)
            elif bound is not None:
                description.own = self._key(operator.query, logical, bound)
        if bound is not None and bound.kind in ("project", "aggregate"):
            description.values = float(len(bound.columns))
            description.size = _TIME_BYTES + sum(_BYTES[one.type] for one in bound.columns)
        elif isinstance(logical, Aggregate):
            description.values, description.size = 2.0, _TIME_BYTES + 2 * _BYTES["float"]
        return description

    def _key(self, query: int, join: Join, bound: Bound) -> dict[str, float]:
        left, right = (self._bound[query][one].columns for one in inputs_of(join))
        equal = equal_columns(bound.condition, left, right)
        return {f"key_{equal[0][0].type}": 1.0} if equal else {}


def _condition(condition: Expression | None) -> dict[str, float]:
    """Number and kinds of comparisons, and types of constants."""
    own: dict[str, float] = {}
    open_ = [] if condition is None else [condition]
    while open_:
        one = open_.pop()
        if isinstance(one, Constant):
            own[f"literal_{one.type}"] = 1.0
        elif isinstance(one, Call):
            if one.name in COMPARISONS:
                own["comparisons"] = own.get("comparisons", 0.0) + 1.0
                own[f"compares_{one.name}"] = 1.0
            open_.extend(one.of)
    return own


def _computed(bound: Bound) -> dict[str, float]:
    own = {f"computes_{one.name}": 1.0 for one in bound.computed}
    own |= {f"group_{one.type}": 1.0 for one in bound.groups}
    return own | {f"of_{part.type}": 1.0 for one in bound.computed for part in one.of}


def operator_features(
    kind: str, description: Description, inputs: list[Description], flow: Flow
) -> Floats:
    """The features of one piece of an operator, in the order of `FEATURES`, not scaled.

    Args:
        kind: one of `KINDS`.
        description: of the operator.
        inputs: of its producers; a source has none.
        flow: its rates.
    """
    received = sum(flow.inputs)
    many = max(len(inputs), 1)
    named = dict(description.own)
    named["values_in"] = sum(one.values for one in inputs) / many
    named["values_out"] = description.values
    named["bytes_in"] = log(sum(one.size for one in inputs) / many)
    named["bytes_out"] = log(description.size)
    named["rate_in"], named["rate_out"] = log(received), log(flow.output)
    named["share"] = flow.share
    if kind == "filter":
        named["selectivity"] = ratio(flow.output, received)
    if kind in ("aggregate", "join"):
        length, slide = description.window or (0.0, 0.0)
        named["window"] = log(length * MILLISECONDS)
        named["slide"] = log(slide * MILLISECONDS)
        named["is_sliding"] = float(slide < length)
        named["has_window"] = float(description.window is not None)
        named["held"] = log(received * length)
        if kind == "aggregate":
            # Definition 8: groups in a window over tuples in it.
            named["selectivity"] = ratio(description.groups, received * length)
            named["groups"] = log(description.groups)
        else:
            left, right = flow.inputs
            # Definition 7: results over pairs of tuples in a window.
            pairs = left * right * (length * length / slide if slide > 0 else 1.0)
            named["selectivity"] = ratio(flow.output, pairs)
            named["matches"] = ratio(flow.output, min(left, right))
            named["slower"] = log(min(left, right))
    return np.array([named.get(name, 0.0) for name in FEATURES[kind]])
