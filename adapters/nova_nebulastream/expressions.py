"""Expressions and partitions of a flow, in NebulaStream's SQL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nova_core.errors import NovaError
from nova_engines.flow import Program

STEP = 0x9E3779B97F4A7C15
END = 2**64
BOOLEAN = "BOOLEAN"
TYPES = {"int": "INT64", "float": "FLOAT64", "text": "VARSIZED"}
INT, FLOAT, TEXT = TYPES.values()


@dataclass(frozen=True)
class Value:
    """An expression.

    Attributes:
        sql: its text, in brackets where it has several parts.
        type: as NebulaStream calls it.
        conjuncts: of a condition, what all has to hold; none where it is one alone.
    """

    sql: str
    type: str
    conjuncts: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What all has to hold."""
        return self.conjuncts or (self.sql,)


def expression(program: Program, columns: Sequence[Value]) -> Value:
    """An expression over columns.

    Args:
        program: of a flow's operator.
        columns: what it is over.

    Raises:
        NovaError: for what NebulaStream has no operation for.
    """
    stack: list[Value] = []
    for token in program:
        kind, colon, rest = token[:1], token[1:2], token[2:]
        if colon == ":":
            stack.append(columns[int(rest)] if kind == "c" else constant(kind, rest))
            continue
        right = stack.pop()
        if token in _ALONE:
            stack.append(_ALONE[token](right))
        else:
            stack.append(_binary(token, stack.pop(), right))
    (value,) = stack
    return value


def constant(kind: str, text: str) -> Value:
    """A number or a text: ``i``, ``f`` or ``t``."""
    if kind == "t":
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return Value(f"'{escaped}'", TEXT)
    type_ = INT if kind == "i" else FLOAT
    return Value(f"{type_}({text})", type_)


def _float(value: Value) -> str:
    if value.type == FLOAT:
        return value.sql
    number = re.fullmatch(r"INT64\((-?\d+)\)", value.sql)
    return f"FLOAT64({number[1]})" if number else f"CASTTOTYPE({value.sql} AS FLOAT64)"


def _binary(sign: str, left: Value, right: Value) -> Value:
    if sign in ("AND", "OR"):
        both = (*left.parts, *right.parts) if sign == "AND" else ()
        return Value(f"({left.sql} {sign} {right.sql})", BOOLEAN, both)
    if sign in ("+", "-", "*", "/"):
        # Of whole numbers, only a quotient is no whole number.
        whole = left.type == right.type == INT and sign != "/"
        sides = (left.sql, right.sql) if whole else (_float(left), _float(right))
        return Value(f"({sides[0]} {sign} {sides[1]})", INT if whole else FLOAT)
    if TEXT in (left.type, right.type) and sign not in ("=", "<>"):
        raise NovaError(f"texts with {sign}: NebulaStream compares texts with = and <> only")
    if left.type != right.type:
        left, right = (Value(_float(one), FLOAT) for one in (left, right))
    if sign == "<>":
        return _not(Value(f"({left.sql} = {right.sql})", BOOLEAN))
    return Value(f"({left.sql} {sign} {right.sql})", BOOLEAN)


def _not(value: Value) -> Value:
    return Value(f"(NOT {value.sql})", BOOLEAN)


_ALONE: dict[str, Callable[[Value], Value]] = {
    "NOT": _not,
    "negative": lambda value: Value(f"({value.type}(0) - {value.sql})", value.type),
    "abs": lambda value: Value(f"ABS({value.sql})", value.type),
}


def within(number: str, low: Sequence[float], high: Sequence[float]) -> str:
    """The condition that the rule ``sequence-share`` puts a number into some intervals of [0, 1).

    The rule multiplies the number by a constant modulo 2^64, and divides the top 53 bits by 2^53.
    Unsigned multiplication wraps by itself, and s <= (h >> 11) / 2^53 is ceil(s 2^53) 2^11 <= h: so
    two comparisons of whole numbers say the same, to the last bit.

    Args:
        number: a UINT64.
        low: begin of each interval.
        high: their ends, which do not count.
    """
    spread = f"({number} * UINT64({STEP}))"
    parts = []
    for begin, end in zip(map(_bound, low), map(_bound, high), strict=True):
        bounds = [f"{spread} >= UINT64({begin})"] if begin else []
        bounds += [f"{spread} < UINT64({end})"] if end < END else []
        parts.append(f"({' AND '.join(bounds)})" if bounds else "")
    if "" in parts:
        return ""
    return f"({' OR '.join(parts)})" if len(parts) > 1 else parts[0]


def _bound(share: float) -> int:
    return min(END, math.ceil(share * 2**53) << 11)
