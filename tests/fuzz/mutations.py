"""Structured changes of valid files: a tree's fields, a table's cells, bytes, and what a path is.

Each change is drawn from a random generator and described in words, so that a seed and a number say
what was done. `Change.invalid` is set only where no reader may accept the result.
"""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import yaml

DEEP = 20_000
LONG = 200_000
NUMBERS: Sequence[Any] = (
    0, -1, -0.0, 1e308, -1e308, 5e-324, 1e-300, 10**30, 2**31, 2**53 + 1, 2**63, 2**64,
    -(2**63) - 1, math.nan, math.inf, -math.inf, 0.5, 1e9,
)  # fmt: skip
TEXTS = (
    "", " ", "nowhere", "\x00", "a\x00b", "a\nb", "\x1b[31m", "../../etc/passwd", "/dev/zero", "-1",
    "nan", "1e999", "'; x", "$(true)", "[red]", "%s%n{}", "\u202e\ufeff", "é" * 300, "𝔘", "\ud800",
    "a/b*c#0", ",", "null", "unlimited",
)  # fmt: skip
OTHERS: Sequence[Any] = (None, True, False, [], {}, [[]], {"": None}, [None])
# Values of a number, as options and cells of tables have them.
WRITTEN = (
    "-1", "0", "nan", "inf", "-inf", "1e308", "-1e308", "1e-300", "5e-324", "10" * 20, "1e999", "",
    " ", "x", "1,5", "0x10", "1_000", "٣", "-0", "2147483648", "9223372036854775808",
    "18446744073709551616", "1e", "--", "9" * 5000,
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What was done to a file.

    Attributes:
        what: in words.
        content: the new content; None where the path itself is changed.
        tree: the document as it is now, where it still is one.
        invalid: why every reader must refuse it; empty where it need not.
    """

    what: str
    content: bytes | None = None
    tree: Any = None
    invalid: str = ""


# --- trees ----------------------------------------------------------------------------------------

Place = tuple[str | int, ...]


def places(tree: Any, at: Place = ()) -> Iterator[Place]:
    """Every place in a document, the whole first."""
    yield at
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from places(value, (*at, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from places(value, (*at, index))


def value_at(tree: Any, place: Place) -> Any:
    """What stands there."""
    for step in place:
        tree = tree[step]
    return tree


def _with(tree: Any, place: Place, value: Any) -> Any:
    if not place:
        return value
    value_at(tree, place[:-1])[place[-1]] = value
    return tree


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _drop(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    del value_at(tree, place[:-1])[place[-1]]
    return "left out", tree, ""


def _rename(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    holder = value_at(tree, place[:-1])
    if not isinstance(holder, dict):
        return _twice(rng, tree, place)
    name = rng.choice(["", "extra", "\x00", str(place[-1]).upper() + "_", "é" * 1000])
    holder[name] = holder.pop(place[-1])
    return f"renamed to {name[:10]!r}", tree, ""


def _add(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    holder = value_at(tree, place[:-1])
    if isinstance(holder, dict):
        holder["unheard-of"] = 1
        return "with a field unheard of beside", tree, ""
    return _twice(rng, tree, place)


def _number(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    value = rng.choice(NUMBERS)
    before = value_at(tree, place)
    bad = isinstance(value, float) and not math.isfinite(value) and _is_number(before)
    # What was not measured is NaN in a matrix of latencies.
    bad = bad and not (math.isnan(value) and place[:2] == ("latency", "matrix"))
    why = "a number that is none" if bad else ""
    return f"is {value}", _with(tree, place, value), why


def _scaled(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    before = value_at(tree, place)
    if not _is_number(before):
        return _number(rng, tree, place)
    value = rng.choice([-before, before * 1e6, before + 1, before * 2 + 3, before / 3])
    return f"is {value} in place of {before}", _with(tree, place, value), ""


def _text(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    value = rng.choice([*TEXTS, "x" * LONG])
    return f"is {value[:20]!r}", _with(tree, place, value), ""


def _other(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    value = copy.deepcopy(rng.choice(OTHERS))
    return f"is {value!r}", _with(tree, place, value), ""


def _from_elsewhere(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    source = rng.choice(list(places(tree)))
    value = copy.deepcopy(value_at(tree, source))
    return f"is what {shown(source)} is", _with(tree, place, value), ""


def _twice(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    """Rows given twice; of rows that have a name, the name is then there twice."""
    lists = [p for p in places(tree) if isinstance(value_at(tree, p), list) and value_at(tree, p)]
    if not lists:
        return _other(rng, tree, place)
    rows = value_at(tree, rng.choice(lists))
    row = rng.choice(rows)
    many = rng.choice([1, 1, 1, 500])
    rows.extend(copy.deepcopy(row) for _ in range(many))
    named = isinstance(row, dict) and ("id" in row or "name" in row)
    return f"{many} copies of row {str(row)[:40]}", tree, "a name given twice" if named else ""


def _shuffled(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    lists = [p for p in places(tree) if isinstance(value_at(tree, p), list)]
    if not lists:
        return _other(rng, tree, place)
    at = rng.choice(lists)
    rng.shuffle(value_at(tree, at))
    return f"{shown(at)} in another order", tree, ""


def _deep(rng: random.Random, tree: Any, place: Place) -> tuple[str, Any, str]:
    value: Any = 1
    for _ in range(200):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return "nested 200 times", _with(tree, place, value), ""


TREE_CHANGES: Sequence[Callable[[random.Random, Any, Place], tuple[str, Any, str]]] = (
    _drop, _rename, _add, _number, _number, _number, _scaled, _scaled, _text, _text, _other,
    _from_elsewhere, _twice, _shuffled, _deep,
)  # fmt: skip


def shown(place: Place) -> str:
    """A place for people."""
    return ".".join(map(str, place))[:80] or "the whole"


def change_tree(rng: random.Random, tree: Any) -> tuple[str, Any, str]:
    """One change of a document, somewhere; the words, the new document and why it is invalid."""
    tree = copy.deepcopy(tree)
    at = [p for p in places(tree) if p]
    if not at:
        return _other(rng, tree, ())
    # Every depth as likely as the next, or else the many cells would take it all.
    depth = rng.choice(sorted({len(p) for p in at}))
    place = rng.choice([p for p in at if len(p) == depth])
    what, tree, invalid = rng.choice(TREE_CHANGES)(rng, tree, place)
    return f"{shown(place)} {what}", tree, invalid


def _yaml_text(tree: Any) -> bytes:
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode(
        "utf-8", "surrogatepass"
    )


def _json_text(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "surrogatepass")


# --- text and bytes -------------------------------------------------------------------------------


def _truncated(rng: random.Random, content: bytes) -> tuple[str, bytes]:
    at = rng.randrange(max(1, len(content)))
    return f"cut after {at} bytes", content[:at]


def _flipped(rng: random.Random, content: bytes) -> tuple[str, bytes]:
    data = bytearray(content)
    bits = rng.choice([1, 1, 3, 30])
    for _ in range(bits if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return f"{bits} bits flipped", bytes(data)


def _inserted(rng: random.Random, content: bytes) -> tuple[str, bytes]:
    extra = rng.choice([b"\0", b"\xff\xfe", b"\n\n", b"\x1b[2J", b"\x00" * 70_000, b"\xed\xa0\x80"])
    at = rng.randrange(len(content) + 1)
    return f"{extra[:8]!r} at {at}", content[:at] + extra + content[at:]


def _replaced(rng: random.Random, content: bytes) -> tuple[str, bytes]:
    text = content.decode("latin-1")
    what, data = rng.choice([
        ("empty", b""),
        ("a blank", b" \n"),
        ("zeros", b"\0" * 4096),
        ("noise", rng.randbytes(2000)),
        ("as UTF-16", text.encode("utf-16")),
        ("as Latin-1 with an é", b"\xe9" + content),
        ("after a byte order mark", b"\xef\xbb\xbf" + content),
        ("with Windows' line ends", content.replace(b"\n", b"\r\n")),
        ("twice", content + content),
        ("gzipped", gzip.compress(content)),
        ("a gzip bomb", BOMB),
        ("nested deeply", b"[" * DEEP + b"]" * DEEP),
        ("mappings nested deeply", b'{"a":' * DEEP + b"1" + b"}" * DEEP),
        ("aliases of aliases", ALIASES),
        ("an alias of itself", b"&a [*a]\n"),
        ("an alias of itself in a mapping", b"nova: 1\nnodes: &a\n  - *a\nquery: *a\n"),
        ("a YAML tag", b"!!python/object/apply:os.system [true]\n"),
        ("two YAML documents", content + b"\n---\n" + content),
        ("one long line", b"x" * 1_000_000),
        ("a huge number", b"9" * 100_000),
        ("null", b"null"),
        ("text", b'"text"'),
        ("a list", b"[1, 2]"),
        ("a mapping", b"{}"),
    ])  # fmt: skip
    return what, data


# A gigabyte in a megabyte.
BOMB = gzip.compress(b"1," * (1 << 24), 6) * 32
ALIASES = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 9)
)
BYTE_CHANGES = (_truncated, _truncated, _flipped, _flipped, _inserted, _replaced, _replaced)


def change_bytes(rng: random.Random, content: bytes) -> Change:
    """One change of bytes, whatever they mean."""
    what, data = rng.choice(BYTE_CHANGES)(rng, content)
    return Change(what, data)


# --- tables ---------------------------------------------------------------------------------------


def _change_csv(rng: random.Random, content: bytes) -> Change:
    rows = list(csv.reader(io.StringIO(content.decode())))
    kind = rng.choice(["cell", "cell", "cell", "row", "column", "head", "twice", "ragged", "none"])
    row = rng.randrange(len(rows))
    column = rng.randrange(len(rows[0]))
    what = kind
    if kind == "cell" and column < len(rows[row]):
        value = rng.choice([*WRITTEN, *(t for t in TEXTS if t != "\ud800"), '"', "x" * LONG])
        what = f"row {row}, column {column} is {value[:20]!r}"
        rows[row][column] = value
    elif kind == "row":
        del rows[row]
    elif kind == "column":
        rows = [r[:column] + r[column + 1 :] for r in rows]
    elif kind == "head":
        rows[0][column] = rng.choice(["", "x", "id", rows[0][0], "\x00"])
    elif kind == "twice":
        rows.append(list(rows[row]))
    elif kind == "ragged":
        rows[row] = rows[row] * 2 if rng.random() < 0.5 else rows[row][:1]
    elif kind == "none":
        rows = rows[:1]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return Change(f"table: {what}, row {row}, column {column}"[:100], text.getvalue().encode())


def _change_arrow(rng: random.Random, content: bytes, parquet: bool) -> Change:
    table = pq.read_table(pa.BufferReader(content)) if parquet else feather.read_table(
        pa.BufferReader(content))  # fmt: skip
    names = table.schema.names
    column = rng.randrange(len(names))
    kind = rng.choice(
        ["values", "values", "type", "drop", "name", "none", "twice", "nulls", "more"]
    )
    values: list[Any] = table.column(column).to_pylist()
    new: Any = None
    what = f"column {names[column]!r}: {kind}"
    if kind == "values":
        value = rng.choice(NUMBERS if _is_number(values[0] if values else 0) else TEXTS[:-1])
        if values and str(values[0]).startswith("{"):  # a document in a cell
            said, tree, _ = change_tree(rng, json.loads(values[0]))
            what, value = f"{what}: {said}", json.dumps(tree)
        values = [value] * len(values) if rng.random() < 0.3 else [value, *values[1:]]
        what += f" {str(value)[:20]!r}"
        new = _array(values)
    elif kind == "type":
        new = rng.choice([
            pa.array([str(v).encode() for v in values], pa.binary()),
            pa.array([[v] for v in values]),
            pa.array([{"a": 1}] * len(values)),
            pa.array([1] * len(values), pa.int8()),
            pa.array([str(v) for v in values]).dictionary_encode(),
            pa.array([True] * len(values)),
            pa.array([0] * len(values), pa.timestamp("ns")),
            pa.array([0] * len(values), pa.date32()),
            pa.array([1] * len(values), pa.decimal128(10, 2)),
            pa.nulls(len(values)),
            pa.array([0.5] * len(values), pa.float32()),
            pa.array([str(v) for v in values], pa.large_string()),
        ])  # fmt: skip
        what += f" {new.type}"
    elif kind == "drop":
        table = table.drop_columns([names[column]])
    elif kind == "name":
        table = table.rename_columns([n if i != column else "x" for i, n in enumerate(names)])
    elif kind == "none":
        table = table.slice(0, 0)
    elif kind == "twice":
        table = pa.concat_tables([table, table.slice(0, 1)])
    elif kind == "nulls":
        new = pa.array([None, *values[1:]], table.schema.field(column).type)
    elif kind == "more":
        table = table.append_column(rng.choice([names[0], "x", ""]), table.column(0))
    if new is not None:
        table = table.set_column(column, names[column], new)
    sink = io.BytesIO()
    try:
        pq.write_table(table, sink) if parquet else feather.write_feather(
            table, sink, compression="uncompressed")  # fmt: skip
    except (pa.ArrowException, ValueError):
        return change_bytes(rng, content)
    return Change(what, sink.getvalue())


def _change_npz(rng: random.Random, content: bytes) -> Change:
    arrays: dict[str, Any] = dict(np.load(io.BytesIO(content)))
    name = "header" if rng.random() < 0.4 else rng.choice(sorted(arrays))
    array, invalid = arrays[name], ""
    kind = rng.choice(["values", "values", "values", "type", "shape", "none"])
    what = f"array {name}: {kind}"
    if name == "header":
        said, tree, _ = change_tree(rng, json.loads(array.tobytes()))
        what, arrays[name] = f"header: {said}", np.frombuffer(_json_text(tree), np.uint8)
    elif kind == "values":
        value = rng.choice([math.nan, math.inf, -math.inf, 1e38, -1e38, 1e-38, -1.0, 0.0])
        arrays[name] = array.copy()
        arrays[name].flat[rng.randrange(array.size)] = value
        what, invalid = f"{what} {value}", "" if math.isfinite(value) else "a number that is none"
    elif kind == "type":
        arrays[name] = array.astype(rng.choice(["f8", "i4", "?", "U8", "O", "c8"]))
    elif kind == "shape":
        arrays[name] = rng.choice([array[:0], array[None], array.T, np.concatenate([array] * 2)])
    elif kind == "none":
        del arrays[name]
        invalid = "an array left out"
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    return Change(what, sink.getvalue(), sorted(arrays), invalid)


def _array(values: list[Any]) -> Any:
    for kind in (None, pa.float64(), pa.string()):
        try:
            return pa.array(values if kind != pa.string() else list(map(str, values)), kind)
        except (pa.ArrowException, OverflowError, UnicodeError, TypeError):
            continue
    return pa.nulls(len(values))


# --- files ----------------------------------------------------------------------------------------


def change_content(rng: random.Random, name: str, content: bytes) -> Change:
    """One change of a file's content, by what its name says it is."""
    try:
        return _change_content(rng, name, content)
    except (ValueError, yaml.YAMLError):
        # Not what its name says, such as the text of a script that ends in .json.
        return change_bytes(rng, content)


def _change_content(rng: random.Random, name: str, content: bytes) -> Change:
    if rng.random() < 0.25 or not content.strip():
        return change_bytes(rng, content)
    suffix = name.removesuffix(".gz").rpartition(".")[2]
    if name.endswith(".gz"):
        inner = change_content(rng, name.removesuffix(".gz"), gzip.decompress(content))
        return Change(f"inside gzip, {inner.what}", gzip.compress(inner.content or b"", 1))
    if suffix in ("yaml", "yml", "json", "geojson"):
        tree = yaml.safe_load(content) if suffix in ("yaml", "yml") else json.loads(content)
        what, tree, invalid = change_tree(rng, tree)
        write = _yaml_text if suffix in ("yaml", "yml") else _json_text
        return Change(what, write(tree), tree, invalid)
    if suffix == "request":
        head, _, body = content.partition(b"\n")
        if not body or rng.random() < 0.1:
            return change_bytes(rng, content)
        change = change_content(rng, "body.json", body)
        return replace(change, content=head + b"\n" + (change.content or b""))
    if content.startswith(b"[{"):
        what, tree, _ = change_tree(rng, json.loads(content))
        return Change(what, _json_text(tree))
    if suffix == "jsonl":
        lines = content.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        if rng.random() < 0.2:
            rng.shuffle(lines)
            return Change("lines in another order", b"".join(lines))
        what, tree, _ = change_tree(rng, json.loads(lines[at]))
        return Change(f"line {at + 1}: {what}", b"".join(
            [*lines[:at], _json_text(tree) + b"\n", *lines[at + 1:]]))  # fmt: skip
    if suffix == "csv" and b";" not in content:
        return _change_csv(rng, content)
    if suffix in ("parquet", "arrow"):
        return _change_arrow(rng, content, suffix == "parquet")
    if suffix == "npz":
        return _change_npz(rng, content)
    return change_bytes(rng, content)


PATH_CHANGES = (
    "missing", "a directory", "a FIFO", "/dev/null", "a link to itself", "a name that is not UTF-8",
    "an empty path", "a path that is too long", "a file in place of its directory",
)  # fmt: skip


def change_path(rng: random.Random, path: Path) -> tuple[str, str]:
    """Make something else of a file or directory; the words, and the path to give."""
    kind = rng.choice(PATH_CHANGES)
    given = str(path)
    keep = path.with_name(f"moved-{path.name}")
    if kind == "an empty path":
        return kind, ""
    if kind == "a path that is too long":
        return kind, "x" * 5000 + path.suffix
    if kind == "a name that is not UTF-8":
        given = os.fsdecode(os.fsencode(path.parent) + b"/\xff\xfe" + os.fsencode(path.suffix))
        path.rename(given)
        return kind, given
    path.rename(keep)
    if kind == "a directory":
        path.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "/dev/null":
        path.symlink_to("/dev/null")
    elif kind == "a link to itself":
        path.symlink_to(path.name)
    elif kind == "a file in place of its directory":
        path.write_bytes(b"")
        given = f"{path}/inside{path.suffix}"
    return kind, given
