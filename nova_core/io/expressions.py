"""Expressions over columns: filters' conditions, joins' predicates and what is computed.

They are SQL's: columns, constants, ``+ - * /``, ``abs``, comparisons, ``BETWEEN``, ``IN``, ``AND``,
``OR`` and ``NOT``. All that is not of this language is refused with its line and column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from nova_core.errors import ProblemError

if TYPE_CHECKING:
    from sqlglot import exp

TYPES = ("int", "float", "text")
FUNCTIONS = ("count", "sum", "mean", "min", "max")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_ARITHMETIC = ("+", "-", "*", "/")
_STRENGTH = {"OR": 1, "AND": 2, "NOT": 3, **dict.fromkeys(COMPARISONS, 4)}
_STRENGTH |= {"+": 5, "-": 5, "*": 6, "/": 6, "negative": 7}
_LEAST_INT, _MOST_INT = -(2**63), 2**63 - 1
_DIALECT = "duckdb"


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        origin: the stream or operator that made it.
        name: unique among those of its origin.
        type: one of `TYPES`.
    """

    origin: str
    name: str
    type: str

    @property
    def text(self) -> str:
        """As it is written in full."""
        return f"{quoted(self.origin)}.{quoted(self.name)}"


@dataclass(frozen=True)
class Constant:
    """A number or a text."""

    value: int | float | str

    @property
    def type(self) -> str:
        """One of `TYPES`."""
        return {int: "int", float: "float", str: "text"}[type(self.value)]

    @property
    def text(self) -> str:
        """As it is written."""
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return repr(self.value)


@dataclass(frozen=True)
class Call:
    """An operation.

    Attributes:
        name: an operator such as ``+``, ``<=`` or ``AND``, ``negative``, ``abs``, or one of
            `FUNCTIONS`.
        of: what it is applied to.
        type: one of `TYPES`, or ``bool``.
    """

    name: str
    of: tuple[Expression, ...]
    type: str

    @cached_property
    def text(self) -> str:
        """As it is written, with the brackets it needs."""
        if self.name not in _STRENGTH:
            return f"{self.name}({', '.join(one.text for one in self.of)})"
        mine = _STRENGTH[self.name]
        parts = [_bracketed(one, mine + (side > 0)) for side, one in enumerate(self.of)]
        if self.name == "NOT":
            return f"NOT {parts[0]}"
        if self.name == "negative":
            return f"-{_bracketed(self.of[0], 8)}"
        if mine == _STRENGTH["="]:
            parts = [_bracketed(one, mine + 1) for one in self.of]
        return f"{parts[0]} {self.name} {parts[1]}"


Expression = Column | Constant | Call


def _bracketed(one: Expression, least: int) -> str:
    weak = isinstance(one, Call) and _STRENGTH.get(one.name, 9) < least
    # "--" begins a comment.
    weak = weak or (least > 7 and one.text.startswith("-"))
    return f"({one.text})" if weak else one.text


def quoted(name: str) -> str:
    """A name as SQL can hold it: in double quotes where it is no plain word."""
    if _is_plain(name):
        return name
    return '"' + name.replace('"', '""') + '"'


@cache
def _is_plain(name: str) -> bool:
    from sqlglot import TokenType, tokenize

    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        return False
    return tokenize(name, dialect=_DIALECT)[0].token_type == TokenType.VAR


def columns_of(one: Expression) -> Iterator[Column]:
    """Every column an expression looks at."""
    if isinstance(one, Column):
        yield one
    elif isinstance(one, Call):
        for part in one.of:
            yield from columns_of(part)


def conjuncts(one: Expression) -> list[Expression]:
    """The conjuncts of a condition, in order."""
    if isinstance(one, Call) and one.name == "AND":
        return [part for side in one.of for part in conjuncts(side)]
    return [one]


def conjunction(parts: Sequence[Expression]) -> Expression:
    """The conjunction of conditions, at least one."""
    whole = parts[0]
    for part in parts[1:]:
        whole = Call("AND", (whole, part), "bool")
    return whole


# --- places -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A named text; errors give a place in it."""

    where: str
    text: str

    def error(self, message: str, at: int) -> ProblemError:
        """An error at an offset, with its line and column, both from 1."""
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return ProblemError(f"{self.where}: line {line}, column {column}: {message}")

    def place(self, node: exp.Expr) -> int:
        """Offset at which a node begins, as near as the parser says."""
        starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
        if starts:
            return int(min(starts))
        parent = node.parent
        return self.place(parent) if parent is not None else 0

    def parse(self, kind: type[exp.Expr] | None = None) -> exp.Expr:
        """Parse it.

        Raises:
            ProblemError: for what is no SQL.
        """
        import logging

        import sqlglot
        from sqlglot.errors import ParseError, SqlglotError

        # What the parser falls back to for foreign commands is refused below.
        logging.getLogger("sqlglot").setLevel(logging.ERROR)
        try:
            parsed = sqlglot.parse_one(self.text, dialect=_DIALECT, into=kind)
        except ParseError as error:
            raise self.error(*self._said(error)) from error
        except (SqlglotError, RecursionError) as error:
            raise self._no_token(error) from error
        return parsed

    def _said(self, error: Any) -> tuple[str, int]:
        first = error.errors[0] if error.errors else {}
        line, column = first.get("line") or 1, first.get("col") or 1
        lines = self.text.split("\n")
        begin = sum(len(one) + 1 for one in lines[: line - 1])
        marked = str(first.get("highlight") or "")
        # The parser gives the column at which the token ends.
        at = max(begin, begin + column - max(1, len(marked)))
        what = str(first.get("description") or "no SQL")
        if "but got" in what or not what or "<class" in what:
            what = (
                f"something is missing at {marked!r}; names that are SQL words need double quotes"
            )
        return what.rstrip("."), at

    def _no_token(self, error: Exception) -> ProblemError:
        if isinstance(error, RecursionError):
            return self.error("nested too deeply", 0)
        opened = re.search(r"'[^']*$", self.text) or re.search(r'"[^"]*$', self.text)
        at = opened.start() if opened and self.text.count(self.text[opened.start()]) % 2 else 0
        return self.error("a quote is not closed or a sign is unknown", at)


# --- reading ------------------------------------------------------------------------------------


class Reader:
    """Reads expressions over some columns.

    Args:
        text: that the nodes are parsed from.
        columns: that can be named.
        aliases: other names of origins.
    """

    def __init__(
        self, text: Text, columns: Sequence[Column], aliases: dict[str, str] | None = None
    ) -> None:
        self.text, self.columns = text, columns
        self.aliases = {one.origin: one.origin for one in columns} if aliases is None else aliases

    def refuse(self, message: str, node: exp.Expr) -> ProblemError:
        """An error at a node."""
        return self.text.error(message, self.text.place(node))

    def condition(self, node: exp.Expr) -> Expression:
        """A boolean expression."""
        condition = self.expression(node)
        if condition.type != "bool":
            raise self.refuse(f"{condition.text} is no condition", node)
        return condition

    def value(self, node: exp.Expr) -> Expression:
        """An expression whose value is a number or a text."""
        value = self.expression(node)
        if value.type == "bool":
            raise self.refuse(f"{value.text} is a condition; a number or text is needed here", node)
        return value

    def expression(self, node: exp.Expr) -> Expression:
        """Any expression without aggregates.

        Raises:
            ProblemError: for what is not in the language, with its place.
        """
        from sqlglot import exp

        if isinstance(node, exp.Paren):
            return self.expression(node.this)
        if isinstance(node, exp.Column):
            return self.column(node)
        if isinstance(node, exp.Literal):
            return self._literal(node)
        if isinstance(node, exp.Neg):
            return self._negative(node)
        if isinstance(node, exp.Abs):
            number = self._number(node.this)
            return Call("abs", (number,), number.type)
        if isinstance(node, exp.Not):
            return Call("NOT", (self.condition(node.this),), "bool")
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = self._compare(">=", node.this, node.args["low"], node)
            return Call(
                "AND", (low, self._compare("<=", node.this, node.args["high"], node)), "bool"
            )
        if isinstance(node, exp.In) and node.args.get("expressions"):
            return self._among(node)
        for kind, name in _binary():
            if type(node) is kind:
                return self._binary(name, node)
        if isinstance(node, exp.AggFunc):
            raise self.refuse(f"{node.sql(_DIALECT)}: an aggregate cannot stand here", node)
        raise self.refuse(f"{_shown(node)} is not in the language", node)

    def column(self, node: exp.Expr) -> Column:
        """The column that a node names."""
        from sqlglot import exp

        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            raise self.refuse(f"{_shown(node)}: a column is needed here", node)
        if node.args.get("db"):
            raise self.refuse(f"{_shown(node)}: a column has one qualifier at most", node)
        name, origin = node.name, node.table
        matches = [one for one in self.columns if one.name == name]
        if origin:
            if origin not in self.aliases:
                raise self.refuse(f"{origin!r} is unknown; there are {_listed(self.aliases)}", node)
            matches = [one for one in matches if one.origin == self.aliases[origin]]
        if len(matches) > 1:
            full = _listed(one.text for one in matches)
            raise self.refuse(f"{name!r} means several columns: {full}", node)
        if not matches:
            known = _listed(one.text for one in self.columns)
            raise self.refuse(f"column {_shown(node)} is unknown; there are {known}", node)
        return matches[0]

    def aggregate(self, node: exp.Expr) -> Call:
        """One of `FUNCTIONS` of an expression; ``count()`` of none."""
        from sqlglot import exp

        kinds: dict[type[exp.Expr], str] = {
            exp.Count: "count",
            exp.Sum: "sum",
            exp.Avg: "mean",
            exp.Min: "min",
            exp.Max: "max",
        }
        name = kinds.get(type(node), "")
        if isinstance(node, exp.Anonymous) and node.name.lower() == "mean":
            name, inner = "mean", node.expressions[0] if len(node.expressions) == 1 else None
        else:
            inner = node.this
        if not name:
            raise self.refuse(f"{_shown(node)}: one of {', '.join(FUNCTIONS)} is needed here", node)
        if node.expressions and not isinstance(node, exp.Anonymous):
            raise self.refuse(f"{name} takes one value", node)
        if name == "count":
            if inner is not None and not isinstance(inner, exp.Star):
                raise self.refuse("count takes nothing: write count(*)", node)
            return Call("count", (), "int")
        if inner is None:
            raise self.refuse(f"{name} takes one value", node)
        of = self._number(inner)
        return Call(name, (of,), "float" if name == "mean" else of.type)

    def _literal(self, node: exp.Expr) -> Constant:
        if node.is_string:
            return Constant(str(node.this))
        text = str(node.this)
        value: int | float = int(text) if re.fullmatch(r"\d+", text) else float(text)
        if (isinstance(value, int) and value > _MOST_INT) or not math.isfinite(value):
            raise self.refuse(f"{text}: no 64-bit number", node)
        return Constant(value)

    def _number(self, node: exp.Expr) -> Expression:
        number = self.expression(node)
        if number.type not in ("int", "float"):
            raise self.refuse(f"{number.text} is {number.type}; a number is needed here", node)
        return number

    def _negative(self, node: exp.Expr) -> Expression:
        number = self._number(node.this)
        if isinstance(number, Constant) and not isinstance(number.value, str):
            return Constant(-number.value)
        return Call("negative", (number,), number.type)

    def _among(self, node: exp.Expr) -> Expression:
        parts = [self._compare("=", node.this, one, node) for one in node.expressions]
        whole = parts[0]
        for part in parts[1:]:
            whole = Call("OR", (whole, part), "bool")
        return whole

    def _compare(self, name: str, left: exp.Expr, right: exp.Expr, node: exp.Expr) -> Call:
        one, other = self.value(left), self.value(right)
        if (one.type == "text") != (other.type == "text"):
            raise self.refuse(
                f"{one.text} is {one.type} and {other.text} is {other.type}; they cannot be "
                "compared",
                node,
            )
        return Call(name, (one, other), "bool")

    def _binary(self, name: str, node: exp.Expr) -> Call:
        left, right = node.this, node.expression
        if name in ("AND", "OR"):
            return Call(name, (self.condition(left), self.condition(right)), "bool")
        if name in COMPARISONS:
            return self._compare(name, left, right, node)
        one, other = self._number(left), self._number(right)
        if name == "/":
            if not isinstance(other, Constant) or not other.value:
                raise self.refuse(f"{_shown(node)}: only division by a constant, not 0", right)
            return Call(name, (one, other), "float")
        both = one.type == other.type == "int"
        return Call(name, (one, other), "int" if both else "float")


def _binary() -> tuple[tuple[type[exp.Expr], str], ...]:
    from sqlglot import exp

    return (
        (exp.And, "AND"),
        (exp.Or, "OR"),
        (exp.EQ, "="),
        (exp.NEQ, "<>"),
        (exp.LT, "<"),
        (exp.LTE, "<="),
        (exp.GT, ">"),
        (exp.GTE, ">="),
        (exp.Add, "+"),
        (exp.Sub, "-"),
        (exp.Mul, "*"),
        (exp.Div, "/"),
    )


def _shown(node: exp.Expr) -> str:
    text = node.sql(_DIALECT)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"


def read_condition(text: str, columns: Sequence[Column], where: str) -> Expression:
    """A condition over some columns; columns may go by their names alone where that is clear.

    Raises:
        ProblemError: saying where, with line and column.
    """
    source = Text(where, text)
    return Reader(source, columns).condition(_whole(source))


def read_value(text: str, columns: Sequence[Column], where: str) -> Expression:
    """A number or text computed from columns."""
    source = Text(where, text)
    return Reader(source, columns).value(_whole(source))


def read_column(text: str, columns: Sequence[Column], where: str) -> Column:
    """One of the columns, by name."""
    source = Text(where, text)
    return Reader(source, columns).column(_whole(source))


def read_aggregate(text: str, columns: Sequence[Column], where: str) -> Call:
    """An aggregate such as ``mean(value)``."""
    source = Text(where, text)
    return Reader(source, columns).aggregate(_whole(source))


def _whole(source: Text) -> exp.Expr:
    if not source.text.strip():
        raise source.error("empty; an expression is expected", 0)
    from sqlglot import exp

    return source.parse(exp.Condition)
