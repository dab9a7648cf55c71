"""YAML and JSON text to typed documents and back, with errors a person can act on."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from nova_core.errors import NovaError
from nova_core.io.safe_files import read_bytes
from nova_core.suggestions import suggestion

if TYPE_CHECKING or yaml.__with_libyaml__:
    from yaml import CSafeDumper as _SafeDumper
    from yaml import CSafeLoader as _SafeLoader
else:
    from yaml import SafeDumper as _SafeDumper
    from yaml import SafeLoader as _SafeLoader

Document = TypeVar("Document")

# YAML 1.1, which PyYAML reads, takes 1e5 for text; YAML 1.2 and people take it for a number.
_EXPONENT = re.compile(r"^[-+]?(?:[0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")
# Lists and keys that begin on one line, which nest without indentation.
_COMPACT = re.compile(r"[-?][ \t]+[-?][ \t]")
# Of JSON: may be half a character beyond 16 bits, which text in UTF-8 cannot hold.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Of a number in a message of msgspec: 1.0, but not 0.05.
_WHOLE = re.compile(r"(?<=\d)\.0(?!\d)")
_INTEGRAL = 2.0**53
_MOST_DEPTH = 200
# What a document may grow by when the aliases in it are replaced.
_MOST_TIMES = 5
_MOST_ALIASED = 50_000
_TYPES = {
    "`float`": "a number",
    "`int`": "a whole number",
    "`str`": "text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "a mapping of fields",
    "`null`": "nothing",
    "`datetime`": "a date",
    "`date`": "a date",
}


class Row(dict[str, Any]):
    """A mapping that is written on one line."""


# --- reading ------------------------------------------------------------------------------------


class _Loader(_SafeLoader):
    """Safe YAML whose fields are text, and that refuses one given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if key_node.tag == "tag:yaml.org,2002:bool":
                # YAML reads `on` as true; here it is a field of joins.
                key_node.tag = "tag:yaml.org,2002:str"
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"field {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def _require_modest(text: str) -> None:
    """Refuse YAML that would exhaust memory or the stack, before it is loaded.

    Raises:
        YAMLError: for a document that aliases expand too much, and for an alias of a node that
            contains it.
        RecursionError: for one that is nested too deeply.
    """
    aliases = "*" in text and "&" in text
    deep = text.count("[") + text.count("{") >= _MOST_DEPTH or _COMPACT.search(text)
    if not (aliases or deep):
        return
    written, sizes = 0, [0]  # sizes of what is open, inner last, with aliases replaced
    anchors: list[str | None] = [None]
    size_of: dict[str, int] = {}
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append(0)
            anchors.append(event.anchor)
            if event.anchor is not None:
                size_of[event.anchor] = 0
            if len(sizes) > _MOST_DEPTH:
                raise RecursionError
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = anchors.pop(), 1 + sizes.pop()
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, 1
        elif isinstance(event, yaml.AliasEvent):
            anchor, size = None, size_of.get(str(event.anchor), 1)
            if size == 0:
                raise yaml.YAMLError(f"alias {event.anchor!r} stands for what it is a part of")
        else:
            continue
        written += 1
        sizes[-1] += size
        if anchor is not None:
            size_of[anchor] = size
    if sizes[0] > _MOST_ALIASED + _MOST_TIMES * written:
        raise yaml.YAMLError(
            f"{written:,} values, of which aliases make {sizes[0]:,}; {_MOST_TIMES} times as many "
            f"and {_MOST_ALIASED:,} more are accepted"
        )


class _Dumper(_SafeDumper):
    """Safe YAML with rows on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
_Dumper.add_representer(
    Row,
    lambda dumper, row: dumper.represent_mapping("tag:yaml.org,2002:map", row, flow_style=True),
)


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"field {next(k for k, n in counts.items() if n > 1)!r} is given twice")
    return result


def _json_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large a number")
    return value


def _json_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def parse(path: Path, error: type[NovaError]) -> Any:
    """The plain content of a YAML or JSON file, by its suffix.

    Raises:
        NovaError: of the given class, naming the file, the line and what is wrong there.
    """
    return parse_bytes(read_bytes(path, error), path, error)


def parse_bytes(content: bytes, path: Path, error: type[NovaError]) -> Any:
    """`parse` of what a file of that name holds, or would hold; nothing is read."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise error(f"{path}: not UTF-8 text (byte {cause.start}); a document is text") from None
    try:
        if path.suffix.lower() == ".json":
            content = json.loads(
                text,
                object_pairs_hook=_json_object,
                parse_constant=_json_constant,
                parse_float=_json_float,
            )
            if _SURROGATE.search(text):
                json.dumps(content, ensure_ascii=False).encode()
            return content
        _require_modest(text)
        return yaml.load(text, _Loader)
    except json.JSONDecodeError as cause:
        cut = "; is the file cut short?" if cause.pos >= len(text.rstrip()) - 1 else ""
        place = f"line {cause.lineno}, column {cause.colno}"
        raise error(f"{path}: {place}: no JSON: {cause.msg}{cut}") from None
    except yaml.MarkedYAMLError as cause:
        mark, problem = cause.problem_mark or cause.context_mark, cause.problem or cause.context
        if problem == "could not find expected ':'" and cause.context_mark is not None:
            # Noticed at the next line, but missing in the one where the key begins.
            mark = cause.context_mark
            problem = f"{_line(text, mark.line)!r}: a colon is missing behind the name of a field"
        elif "\t" in _line(text, mark.line if mark else 0)[: (mark.column if mark else 0) + 1]:
            problem = "a tab indents it; YAML is indented by spaces"
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        if "nesting depth" in str(problem):  # libyaml's scanner, before any event
            problem = "nested too deeply for a document"
        raise error(f"{path}: {place}{problem}") from None
    except yaml.YAMLError as cause:
        raise error(f"{path}: no YAML: {_one_line(cause)}") from None
    except UnicodeEncodeError as cause:
        half = cause.object[cause.start]
        raise error(f"{path}: {half!r} is half a character; whole ones are needed") from None
    except RecursionError:
        raise error(f"{path}: nested too deeply for a document") from None
    except ValueError as cause:
        raise error(f"{path}: {_one_line(cause)}") from None
    except (AttributeError, IndexError, KeyError, TypeError) as cause:
        # PyYAML converts tagged text without checking it first.
        raise error(f"{path}: no YAML: a value is not what its tag says: {cause}") from None


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number][:80].rstrip() if number < len(lines) else ""


def _one_line(cause: Exception) -> str:
    return " ".join(str(cause).split())


def read_typed(
    path: Path, kind: type[Document], marker: str, version: int, error: type[NovaError]
) -> Document:
    """A file as a typed document, after its version was checked.

    Args:
        path: the file.
        kind: msgspec struct the document is read into.
        marker: top-level field that holds the format's version.
        version: the version this code reads.
        error: class of the errors raised.

    Raises:
        NovaError: of the given class, naming file, field, value and what would be accepted.
    """
    return typed(parse(path, error), path, kind, marker, version, error)


def typed(
    raw: Any, path: Path, kind: type[Document], marker: str, version: int, error: type[NovaError]
) -> Document:
    """`read_typed` of what `parse` has returned."""
    if not isinstance(raw, dict):
        raise error(f"{path}: holds {_named(raw)}; a mapping with '{marker}: {version}' is needed")
    if marker not in raw:
        raise error(
            f"{path}: field {marker!r} is missing; a line '{marker}: {version}', the format's "
            "version, is expected"
        )
    if raw[marker] != version or isinstance(raw[marker], bool):
        raise error(
            f"{path}: {marker}: format version {_shown(raw[marker])}; {version} is read here"
        )
    return convert(raw, path, kind, error)


def convert(raw: Any, path: Path, kind: type[Document], error: type[NovaError]) -> Document:
    """Plain values as a typed document without a version.

    Raises:
        NovaError: as `read_typed`.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as cause:
        raise error(f"{path}: {_explain(str(cause), raw, kind)}") from None
    except (OverflowError, RecursionError) as cause:
        raise error(f"{path}: {_one_line(cause)}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _named(value: Any) -> str:
    for kinds, name in (
        (dict, "a mapping"),
        (list, "a list"),
        (str, "text"),
        (type(None), "nothing"),
    ):
        if isinstance(value, kinds):
            return name
    return _shown(value)


def _steps(path: str) -> list[str | int]:
    """Steps of ``$.nodes[3].rate``, up to a mapping's key, which msgspec does not report."""
    steps: list[str | int] = []
    for name, index in re.findall(r"\.([^.\[\]]+)|\[([0-9]+|\.\.\.)\]", path):
        if index == "...":
            break
        steps.append(name if name else int(index))
    return steps


def _item(value: Any, step: str | int) -> Any:
    return value[step] if hasattr(value, "__getitem__") else None


def _explain(message: str, raw: Any, kind: type[Any]) -> str:
    """The message of msgspec, with the rejected value and what is accepted."""
    text, _, path = message.partition(" - at ")
    steps = _steps(path.strip("`"))
    place = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps).lstrip(".")
    value, types = raw, [inspect.type_info(kind)]
    for step in steps:
        value = _item(value, step)
        types = [inner for each in types for inner in _inside(each, step)]
    prefix = f"{place}: " if place else ""
    if unknown := re.match(r"Object contains unknown field `(.*)`", text):
        fields = sorted({n for each in types for n in _field_names(each)})
        return f"{prefix}unknown field {unknown[1]!r}; {suggestion(unknown[1], fields)}"
    if missing := re.match(r"Object missing required field `(.*)`", text):
        name = f" of {value['id']!r}" if isinstance(value, dict) and "id" in value else ""
        return f"{prefix}field {missing[1]!r}{name} is missing"
    accepted = text.removeprefix("Expected ").partition(", got")[0]
    for original, named in _TYPES.items():
        accepted = accepted.replace(original, named)
    if words := [w for each in types for w in _words(each)]:
        numbers = "a number or " if any(_is_number(each) for each in types) else ""
        accepted = numbers + "one of " + ", ".join(words)
    accepted = _WHOLE.sub("", accepted.replace(" | ", " or "))
    hint = ""
    if accepted.startswith("text") and not isinstance(value, (list, dict, type(None))):
        hint = "; write it in quotes"
    return f"{prefix}{_shown(value)} is not accepted; {accepted} is expected{hint}"


def listed(names: Sequence[str], most: int) -> str:
    """Names, and how many there are more than are shown."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The types that a value may have, without their metadata."""
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from alternatives(each)
    elif isinstance(kind, inspect.Metadata):
        yield from alternatives(kind.type)
    else:
        yield kind


def _inside(kind: inspect.Type, step: str | int) -> Iterator[inspect.Type]:
    for each in alternatives(kind):
        if isinstance(each, inspect.StructType):
            yield from (f.type for f in each.fields if f.encode_name == step)
            if each.tag_field == step:
                yield inspect.LiteralType((str(each.tag),))
        elif isinstance(each, inspect.ListType) and isinstance(step, int):
            yield each.item_type
        elif isinstance(each, inspect.DictType) and isinstance(step, str):
            yield each.value_type


def _field_names(kind: inspect.Type) -> Iterator[str]:
    for each in alternatives(kind):
        if isinstance(each, inspect.StructType):
            yield from (f.encode_name for f in each.fields)


def _words(kind: inspect.Type) -> Iterator[str]:
    for each in alternatives(kind):
        if isinstance(each, inspect.LiteralType):
            yield from (str(value) for value in each.values)


def _is_number(kind: inspect.Type) -> bool:
    return any(isinstance(each, inspect.FloatType) for each in alternatives(kind))


# --- writing ------------------------------------------------------------------------------------


def number(value: float) -> float | int:
    """A finite float as people write it: 25 rather than 25.0; reads back as the same float."""
    value = float(value)
    negative_zero = value == 0 and math.copysign(1.0, value) < 0
    return (
        int(value) if value.is_integer() and abs(value) < _INTEGRAL and not negative_zero else value
    )


def dump(document: Mapping[str, Any], suffix: str) -> str:
    """A document as YAML or JSON text; `Row` values stand on one line each."""
    if suffix == ".json":
        return _json(document, 0) + "\n"
    text: str = yaml.dump(
        dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**20
    )
    return text


@cache
def _compact() -> Callable[[Any], str]:
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _json(value: Any, depth: int) -> str:
    compact = _compact()
    pad = "  " * (depth + 1)
    if isinstance(value, Mapping) and not isinstance(value, Row) and value:
        inner = [f"{pad}{compact(key)}: {_json(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner) + "\n" + pad[2:] + "}"
    if isinstance(value, list) and any(isinstance(item, (Row, list)) for item in value):
        return "[\n" + ",\n".join(f"{pad}{compact(item)}" for item in value) + "\n" + pad[2:] + "]"
    return compact(value)
