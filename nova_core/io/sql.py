"""Queries as SQL: one SELECT over windows, turned into the operators of a query.

``SELECT ... FROM stream [alias] [JOIN stream [alias] ON condition]... [WHERE condition]
[GROUP BY columns [HAVING condition]] [WINDOW TUMBLE(1 s) | WINDOW HOP(2 s, 500 ms)]``
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.io.expressions import (
    Call,
    Column,
    Expression,
    Reader,
    Text,
    columns_of,
    conjunction,
    conjuncts,
    quoted,
)
from nova_core.model.queries import Aggregate, Filter, Join, LogicalOperator, Project

if TYPE_CHECKING:
    from sqlglot import exp

SELECT, AGGREGATE, HAVING = "select", "aggregate", "having"
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0}
# Parts of a SELECT that the language has; the parser knows dozens of others.
_KNOWN = {"kind", "expressions", "from_", "joins", "where", "group", "having"}
_WORDS = {"with_": "WITH", "limit": "LIMIT", "order": "ORDER", "distinct": "DISTINCT"}


@dataclass(frozen=True)
class _Window:
    size: float
    slide: float | None


def read_sql(
    text: str, streams: Mapping[str, Sequence[Column]], where: str
) -> list[LogicalOperator]:
    """The operators of a query in SQL.

    They are called ``join-1``, ``join-2``, ... in the order of FROM, ``filter-1``, ... in the order
    of WHERE (all conditions on one stream alone are one filter), ``aggregate``, ``having`` and
    ``select``.

    Args:
        text: the query.
        streams: columns of every stream.
        where: what errors begin with.

    Raises:
        ProblemError: for what is not in the language, with line and column.
    """
    source = Text(where, text)
    window, rest = _window(source)
    return _Statement(Text(where, rest), streams, window).operators()


def _window(source: Text) -> tuple[_Window | None, str]:
    """The window clause, which comes last, and the text without it (of equal length)."""
    from sqlglot import TokenType, tokenize
    from sqlglot.errors import SqlglotError

    try:
        tokens = tokenize(source.text, dialect="duckdb")
    except SqlglotError:
        source.parse()
        raise
    # Texts and quoted names are tokens of other types.
    begin = next((one.start for one in tokens if one.token_type == TokenType.WINDOW), None)
    if begin is None:
        return None, source.text
    clause = source.text[begin:].rstrip().removesuffix(";").rstrip()
    number = r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min)"
    match = re.fullmatch(
        rf"WINDOW\s+(?:TUMBLE\s*\(\s*{number}\s*\)|HOP\s*\(\s*{number}\s*,\s*{number}\s*\))",
        clause,
        re.IGNORECASE,
    )
    if match is None:
        message = "expected WINDOW TUMBLE(1 s) or WINDOW HOP(2 s, 500 ms) at the end"
        raise source.error(message, begin)
    parts = match.groups()
    lengths = [
        float(parts[i]) * _UNITS[parts[i + 1].lower()] for i in (0, 2, 4) if parts[i] is not None
    ]
    lengths = [round(one, 9) for one in lengths]
    return _Window(lengths[0], lengths[1] if len(lengths) > 1 else None), source.text[:begin]


class _Statement:
    def __init__(
        self, source: Text, streams: Mapping[str, Sequence[Column]], window: _Window | None
    ) -> None:
        from sqlglot import exp

        self.source, self.streams, self.window = source, streams, window
        if not source.text.strip():
            raise source.error("empty; SELECT ... FROM ... is expected", 0)
        parsed = source.parse()
        if not isinstance(parsed, exp.Select):
            raise source.error("only one SELECT ... FROM ... is in the language", 0)
        self.select = parsed
        if not parsed.expressions:
            raise source.error("SELECT: columns are missing", 0)
        for name, value in parsed.args.items():
            if value and name not in _KNOWN:
                word = _WORDS.get(name, name.strip("_").upper())
                raise source.error(f"{word} is not in the language", self._word(word, value))
        if parsed.args.get("kind"):
            raise source.error(f"SELECT AS {parsed.args['kind']} is not in the language", 0)
        self.operators_: list[LogicalOperator] = []
        self.columns: list[Column] = []
        self.aliases: dict[str, str] = {}

    def _word(self, word: str, value: Any) -> int:
        match = re.search(rf"\b{re.escape(word)}\b", self.source.text, re.IGNORECASE)
        if match:
            return match.start()
        first = value[0] if isinstance(value, list) else value
        return self.source.place(first) if hasattr(first, "walk") else 0

    def operators(self) -> list[LogicalOperator]:
        last = self._from()
        last = self._where(last)
        if self.select.args.get("group") or self._aggregates():
            last = self._aggregate(last)
        else:
            if self.select.args.get("having"):
                raise self._refuse("HAVING needs GROUP BY", self.select.args["having"])
            self._select(last)
        if self.window and not any(isinstance(one, Join | Aggregate) for one in self.operators_):
            raise self.source.error(
                "WINDOW: nothing here has windows; joins and aggregates have", len(self.source.text)
            )
        if not self.operators_:
            raise self.source.error("SELECT *: nothing is done to the stream", 0)
        return self.operators_

    def _refuse(self, message: str, node: exp.Expr) -> ProblemError:
        return self.source.error(message, self.source.place(node))

    def _reader(self) -> Reader:
        return Reader(self.source, self.columns, self.aliases)

    def _windowed(self, what: str, node: exp.Expr) -> dict[str, Any]:
        if self.window is None:
            raise self._refuse(f"{what} needs a window: end with WINDOW TUMBLE(1 s)", node)
        more = {} if self.window.slide is None else {"slide": self.window.slide}
        return {"window": self.window.size, **more}

    # --- FROM -----------------------------------------------------------------------------------

    def _stream(self, table: exp.Expr | None) -> str:
        from sqlglot import exp

        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            node = self.select if table is None else table
            raise self._refuse("a stream is needed in FROM", node)
        allowed = {"this", "alias", "joins"}
        odd = [name for name, value in table.args.items() if value and name not in allowed]
        alias = table.args.get("alias")
        if odd or (alias is not None and alias.args.get("columns")):
            raise self._refuse(f"{table.sql('duckdb')!r} is not in the language", table)
        if table.args.get("joins"):
            raise self._refuse("brackets in FROM are not in the language", table)
        name = table.name
        if name not in self.streams:
            known = ", ".join(self.streams)
            raise self._refuse(f"stream {name!r} is unknown; there are {known}", table)
        if name in self.aliases.values():
            raise self._refuse(f"stream {name!r} is joined with itself; that is left out", table)
        alias_name = table.alias or name
        if alias_name in self.aliases:
            raise self._refuse(f"alias {alias_name!r} is there twice", table)
        self.aliases[alias_name] = name
        self.columns += self.streams[name]
        return name

    def _from(self) -> str:
        first = self.select.args.get("from_")
        if first is None:
            raise self.source.error("FROM is missing", len(self.source.text.rstrip()))
        last = self._stream(first.this)
        for number, join in enumerate(self.select.args.get("joins") or [], 1):
            for part in ("method", "side", "using", "hint", "global", "match_condition", "pivots"):
                if join.args.get(part):
                    kind = str(join.args.get(part)).upper() if part != "using" else "USING"
                    raise self._refuse(f"{kind} JOIN is not in the language", join)
            if str(join.args.get("kind") or "INNER").upper() != "INNER":
                raise self._refuse(f"{join.args['kind']} JOIN is not in the language", join)
            other = self._stream(join.this)
            on = join.args.get("on")
            if on is None:
                raise self._refuse(f"JOIN {other}: ON is missing", join)
            operator = Join(
                id=f"join-{number}",
                inputs=[last, other],
                on=self._reader().condition(on).text,
                **self._windowed("JOIN", join),
            )
            self.operators_.append(operator)
            last = operator.id
        return last

    def _where(self, last: str) -> str:
        where = self.select.args.get("where")
        if where is None:
            return last
        by_origin: dict[tuple[str, ...], list[Expression]] = {}
        for one in conjuncts(self._reader().condition(where.this)):
            mentioned = tuple(sorted({column.origin for column in columns_of(one)}))
            by_origin.setdefault(mentioned, []).append(one)
        joined = len(self.aliases) > 1
        for number, (origins, parts) in enumerate(by_origin.items(), 1):
            reads = origins[0] if joined and len(origins) == 1 else UNSET
            condition = conjunction(parts).text
            self.operators_.append(
                Filter(id=f"filter-{number}", input=last, where=condition, reads=reads)
            )
            last = f"filter-{number}"
        return last

    # --- SELECT ---------------------------------------------------------------------------------

    def _aggregates(self) -> bool:
        from sqlglot import exp

        return any(one.find(exp.AggFunc) for one in self.select.expressions) or any(
            isinstance(node, exp.Anonymous) and node.name.lower() == "mean"
            for one in self.select.expressions
            for node in one.walk()
        )

    def _items(self) -> list[tuple[str | None, exp.Expr]]:
        from sqlglot import exp

        items: list[tuple[str | None, exp.Expr]] = []
        for one in self.select.expressions:
            if isinstance(one, exp.Alias):
                items.append((one.alias, one.this))
            else:
                items.append((None, one))
        return items

    def _named(self, name: str | None, node: exp.Expr, taken: Mapping[str, Any]) -> str:
        from sqlglot import exp

        if name is None:
            if not isinstance(node, exp.Column):
                raise self._refuse("this needs a name: add AS name", node)
            name = node.name
        if name in taken:
            raise self._refuse(f"{name!r} is there twice; add AS and another name", node)
        return name

    def _select(self, last: str) -> None:
        from sqlglot import exp

        items = self._items()
        if len(items) == 1 and isinstance(items[0][1], exp.Star):
            if items[0][1].args.get("except_") or items[0][1].args.get("replace"):
                raise self._refuse("only a plain * is in the language", items[0][1])
            return
        reader, columns = self._reader(), dict[str, str]()
        for alias, node in items:
            if isinstance(node, exp.Star):
                raise self._refuse("* stands alone", node)
            value = reader.value(node)
            columns[self._named(alias, node, columns)] = value.text
        self.operators_.append(Project(id=SELECT, input=last, columns=columns))

    def _aggregate(self, last: str) -> str:
        from sqlglot import exp

        group = self.select.args.get("group")
        reader = self._reader()
        if group is not None:
            odd = [name for name, value in group.args.items() if value and name != "expressions"]
            if odd:
                raise self._refuse(f"GROUP BY {odd[0].upper()} is not in the language", group)
        by = [reader.column(one) for one in (group.expressions if group is not None else [])]
        names = [one.name for one in by]
        if len(set(names)) < len(names):
            raise self._refuse("GROUP BY: two columns of one name", self.select)
        computed: dict[str, Call] = {}
        selected: list[tuple[str, str]] = []
        for alias, node in self._items():
            if isinstance(node, exp.Column):
                column = reader.column(node)
                if column not in by:
                    raise self._refuse(f"{column.text} is not in GROUP BY", node)
                name = self._named(alias, node, dict(selected))
                selected.append((name, column.name))
                continue
            call: Call = reader.aggregate(node)
            name = self._named(alias, node, dict(selected))
            if name in names:
                raise self._refuse(f"{name!r} is a column of GROUP BY as well", node)
            computed[name] = call
            selected.append((name, name))
        if not computed:
            raise self._refuse("an aggregate such as count(*) is needed in SELECT", self.select)
        first = group if group is not None else self.select
        self.operators_.append(
            Aggregate(
                id=AGGREGATE,
                input=last,
                group_by=[one.text for one in by],
                compute={name: call.text for name, call in computed.items()},
                **self._windowed("GROUP BY", first),
            )
        )
        last = AGGREGATE
        having = self.select.args.get("having")
        if having is not None:
            last = self._having(having, by, computed)
        if [name for name, _ in selected] != [*names, *computed] or any(
            a != b for a, b in selected
        ):
            columns = {name: f"{AGGREGATE}.{quoted(old)}" for name, old in selected}
            self.operators_.append(Project(id=SELECT, input=last, columns=columns))
            last = SELECT
        return last

    def _having(self, having: exp.Expr, by: Sequence[Column], computed: Mapping[str, Call]) -> str:
        """A filter of results; it may name them, or say once more how they are computed."""
        from sqlglot import exp

        inner = self._reader()
        results = [Column(AGGREGATE, one.name, one.type) for one in by]
        results += [Column(AGGREGATE, name, call.type) for name, call in computed.items()]
        by_text = {call.text: name for name, call in computed.items()}

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.AggFunc):
                text = inner.aggregate(node).text
                if text not in by_text:
                    raise self._refuse(f"{text} is not in SELECT", node)
                return _result(by_text[text], node)
            if isinstance(node, exp.Column) and node.table in self.aliases:
                column = inner.column(node)
                if column in by:
                    return _result(column.name, node.this)
            return node

        condition = having.this.transform(replaced)
        passes = Reader(self.source, results).condition(condition)
        self.operators_.append(Filter(id=HAVING, input=AGGREGATE, where=passes.text))
        return HAVING


def _result(name: str, node: exp.Expr) -> exp.Expr:
    """A column of the aggregate in place of a node."""
    from sqlglot import exp

    column = exp.column(name, table=AGGREGATE, quoted=True)
    column.this.meta.update(node.meta)
    return column
