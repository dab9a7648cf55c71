"""Dataclasses as JSON and back, with nothing but the standard library.

The engine's client reads them in Flink's own environment, where the packages that read Nova's
documents elsewhere are not installed.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from nova_core.errors import NovaError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A dataclass, with all it holds, as dictionaries, lists and scalars; defaults are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_plain(getattr(value, field.name))
            for field in fields(value)
            if field.default is MISSING or getattr(value, field.name) != field.default
        }
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: to_plain(each) for name, each in value.items()}
    return value


def from_json(text: str | bytes, kind: type[T], where: str) -> T:
    """Read a dataclass from JSON.

    Raises:
        NovaError: naming ``where``, the field and what it should hold.
    """
    return from_plain(_parsed(text, where), kind, where)


def read(path: Path, kind: type[T]) -> T:
    """Read a dataclass from a file of JSON.

    Raises:
        NovaError: naming the file, the field and what it should hold.
    """
    return from_plain(read_plain(path), kind, str(path))


def read_plain(path: Path) -> Any:
    """The content of a file of JSON.

    Raises:
        NovaError: for a file that is missing, cannot be read, or is not JSON.
    """
    if not path.is_file():
        raise NovaError(f"{path}: {'is no file' if path.exists() else 'no such file'}")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NovaError(f"{path}: cannot be read as text: {error}") from error
    return _parsed(text, str(path))


def _parsed(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NovaError(f"{where}: not JSON: {error}") from error


def from_plain(plain: Any, kind: type[T], where: str) -> T:
    """Undo `to_plain`; errors as of `from_json`."""
    document: T = _read(plain, kind, where)
    return document


def to_json(value: Any) -> str:
    """A dataclass as JSON text."""
    return json.dumps(to_plain(value), indent=1) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write a dataclass to a file of JSON, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(to_json(value), "utf-8")
    part.replace(path)


def _read(value: Any, kind: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _read_dataclass(value, kind, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(value, list):
        if len(arguments) == 2 and arguments[1] is ...:
            return tuple(_read(each, arguments[0], f"{where}[{i}]") for i, each in enumerate(value))
        if len(arguments) == len(value):
            return tuple(
                _read(each, one, f"{where}[{i}]")
                for i, (each, one) in enumerate(zip(value, arguments, strict=True))
            )
    elif origin is dict and isinstance(value, dict):
        return {name: _read(each, arguments[1], f"{where}.{name}") for name, each in value.items()}
    elif origin in (types.UnionType, Union):
        if value is None and type(None) in arguments:
            return None
        rest = [one for one in arguments if one is not type(None)]
        if len(rest) == 1:
            return _read(value, rest[0], where)
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(kind, type) and type(value) is kind:
        return value
    expected = getattr(kind, "__name__", str(kind))
    raise NovaError(f"{where}: {value!r}: expected {expected}")


def _read_dataclass(value: Any, kind: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise NovaError(f"{where}: {value!r}: expected an object")
    known = {field.name: field for field in fields(kind)}
    for name in value:
        if name not in known:
            raise NovaError(f"{where}: unknown field {name!r}; there are {', '.join(known)}")
    for name, field in known.items():
        if name not in value and field.default is field.default_factory is MISSING:
            raise NovaError(f"{where}: {name} is missing")
    kinds = get_type_hints(kind)
    return kind(
        **{name: _read(each, kinds[name], f"{where}.{name}") for name, each in value.items()}
    )
