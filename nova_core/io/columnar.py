"""Tables in Parquet, Arrow IPC and CSV files as numpy columns, with errors that name the cell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from nova_core.errors import NovaError
from nova_core.io.packed import PackedError, check_packed, check_size
from nova_core.io.rows import ReadTable
from nova_core.io.safe_files import UNLIMITED, atomic_write
from nova_core.model.name_index import arrow_numbers, arrow_text, numbers_of, text_of
from nova_core.model.problem import Bools, Floats, Ints, Strings

if TYPE_CHECKING:
    from msgspec import Struct, inspect

Kind = Literal["text", "number", "flag", "capacity", "whole"]
AXES = ("x", "y", "z")
_MOST_AXES = 64
_CELL = 8  # bytes of a number in memory


def position_columns(dimensions: int) -> list[str]:
    """Names of coordinate columns: x, y, z, or position_0 and on beyond three dimensions."""
    if dimensions <= len(AXES):
        return list(AXES[:dimensions])
    return [f"position_{axis}" for axis in range(dimensions)]


POSITION_KINDS: dict[str, Kind] = dict.fromkeys(
    [*AXES, *(f"position_{axis}" for axis in range(_MOST_AXES))], "number"
)


class Field(NamedTuple):
    """A field of a struct, as documents have it.

    Attributes:
        name: of the field.
        types: that its values may have.
        required: whether it must be present.
        description: what it is, and its unit.
    """

    name: str
    types: list[inspect.Type]
    required: bool
    description: str


@cache
def fields_of(row: type[Struct]) -> list[Field]:
    """The fields of a struct."""
    from msgspec import inspect

    from nova_core.io.syntax import alternatives

    info = inspect.type_info(row)
    assert isinstance(info, inspect.StructType)
    return [
        Field(
            field.encode_name,
            list(alternatives(field.type)),
            field.required,
            (getattr(field.type, "extra_json_schema", None) or {}).get("description", ""),
        )
        for field in info.fields
    ]


def known_columns(row: type[Struct]) -> dict[str, Kind]:
    """The columns that a file of a table may have.

    Args:
        row: struct of the table's rows in a document; a range has two columns of the file
            (``left_begin``, ``left_end``), and a position one per axis.
    """
    from msgspec import inspect

    kinds: dict[str, Kind] = {}
    for name, types, *_ in fields_of(row):
        numbers = any(isinstance(one, inspect.FloatType) for one in types)
        if name == "position":
            kinds |= POSITION_KINDS
        elif any(isinstance(one, inspect.ListType) and one.max_length == 2 for one in types):
            kinds |= {f"{name}_{end}": "whole" for end in ("begin", "end")}
        elif any(isinstance(one, inspect.BoolType) for one in types):
            kinds[name] = "flag"
        elif numbers and any(isinstance(one, inspect.LiteralType) for one in types):
            kinds[name] = "capacity"
        else:
            kinds[name] = "number" if numbers else "text"
    return kinds


class Columns(ReadTable):
    """A table of a file.

    Attributes:
        path: its file.
        names: the columns' names.
    """

    def __init__(self, path: Path, table: Any, error: type[NovaError]) -> None:
        self.path = path
        self.names: list[str] = table.column_names
        self._table = table
        self._error = error

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def fail(self, name: str, message: str, row: int | None = None) -> NovaError:
        """An error that names the cell."""
        place = f"row {row + 1}, " if row is not None else ""
        return self._error(f"{self.path}: {place}column {name!r}: {message}")

    def _column(self, name: str) -> Any:
        if name not in self.names:
            raise self._error(
                f"{self.path}: column {name!r} is missing; there are {', '.join(self.names)}"
            )
        return self._table.column(name).combine_chunks()

    def _require_filled(self, name: str, column: Any) -> None:
        if column.null_count:
            row = int(np.argmax(numbers_of(column.is_null())))
            raise self.fail(name, "no value", row)

    def order(self, name: str) -> Ints:
        """(k,) rows by ascending values of a column; empty cells last, ties as is."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(name)
        try:
            order = pc.array_sort_indices(pc.rank(column, tiebreaker="first"))
        except pa.ArrowNotImplementedError:
            raise self.fail(name, f"holds {column.type}; values with an order are needed") from None
        return np.array(order, np.int64)

    def empty(self, name: str) -> Bools:
        """(k,) whether a cell is empty."""
        return np.array(numbers_of(self._column(name).is_null()))

    def _texts(self, name: str, missing: str | None = None) -> Any:
        """A text column; ``missing`` stands for an empty cell, None refuses one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(name)
        kind = column.type
        value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(value_type) or pa.types.is_large_string(value_type)):
            raise self.fail(name, f"holds {kind}; text is needed")
        if kind != value_type and (column.null_count or column.dictionary.null_count):
            column = column.cast(value_type)
        if missing is None:
            self._require_filled(name, column)
        elif column.null_count:
            column = column.fill_null(missing)
        values = column.dictionary if pa.types.is_dictionary(column.type) else column
        bad = pc.match_substring(values, "\0")
        if pc.any(bad).as_py():
            row = pc.index(bad, pa.scalar(True)).as_py()
            raise self.fail(name, f"{values[row].as_py()!r} is no name")
        return column

    def coded(self, name: str, missing: str | None = None) -> tuple[Ints, Strings]:
        """((k,), (v,)): a text column as codes into values, each of them once if it repeats any."""
        import pyarrow as pa

        column = self._texts(name, missing)
        if pa.types.is_dictionary(column.type):
            return numbers_of(column.indices).astype(np.int64), text_of(column.dictionary)
        return np.arange(len(column)), text_of(column)

    def text(self, name: str, missing: str | None = None) -> Strings:
        """(k,) a text column."""
        import pyarrow as pa

        column = self._texts(name, missing)
        if pa.types.is_dictionary(column.type):
            return super().text(name, missing)
        return text_of(column)

    def floats(self, name: str, missing: float | None = None) -> Floats:
        """(k,) a column of numbers; ``missing`` stands for an empty cell, None refuses one."""
        import pyarrow as pa

        column = self._column(name)
        if missing is None:
            self._require_filled(name, column)
        if pa.types.is_null(column.type):
            return np.full(len(column), np.nan if missing is None else missing)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise self.fail(name, f"holds {column.type}; numbers are needed")
        column = column.cast(pa.float64(), safe=False)
        if column.null_count:
            column = column.fill_null(missing)
        return np.array(numbers_of(column))

    def whole(self, name: str, missing: int | None = None) -> Ints:
        """(k,) a column of whole numbers; ``missing`` is an empty cell, None refuses one."""
        import pyarrow as pa

        column = self._column(name)
        if missing is None:
            self._require_filled(name, column)
        elif pa.types.is_integer(column.type):
            column = column.fill_null(missing)
        if not pa.types.is_integer(column.type):
            raise self.fail(name, f"holds {column.type}; whole numbers are needed")
        return np.array(numbers_of(column), np.int64)

    def ranges(self, name: str) -> tuple[Ints, Ints]:
        """((k,), (k,)) begin and end of ranges, a column each."""
        return self.whole(f"{name}_begin"), self.whole(f"{name}_end")

    def capacity(self, name: str) -> Floats:
        """(k,) a column of numbers in which ``unlimited`` stands for infinity."""
        import pyarrow as pa

        column = self._column(name)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return self.floats(name)
        self._require_filled(name, column)
        values = np.empty(len(column))
        for row, text in enumerate(column.to_pylist()):
            try:
                values[row] = np.inf if text.strip() == UNLIMITED else float(text)
            except ValueError:
                message = f"{text!r} is no number of tuples/s, nor {UNLIMITED!r}"
                raise self.fail(name, message, row) from None
        return values

    def flags(self, name: str, missing: Bools) -> Bools:
        """(k,) a column of true and false; empty cells take the value of ``missing`` ((k,))."""
        import pyarrow as pa

        column = self._column(name)
        if not pa.types.is_boolean(column.type):
            raise self.fail(name, f"holds {column.type}; true or false is needed")
        if not column.null_count:
            return np.array(numbers_of(column))
        return np.where(self.empty(name), missing, numbers_of(column.fill_null(False)))

    def lists(self, name: str) -> tuple[Ints, Ints, Strings]:
        """((k + 1,), (v,), values): a column of lists of text as offsets and codes."""
        offset, inner = self._flat(name, "names")
        return offset, *inner.coded(name)

    def number_lists(self, name: str, whole: bool = True) -> tuple[Ints, Ints | Floats]:
        """((k + 1,), (v,)) offsets and values of a column of lists of (whole) numbers."""
        offset, inner = self._flat(name, "whole numbers" if whole else "numbers")
        return offset, inner.whole(name) if whole else inner.floats(name)

    def _flat(self, name: str, what: str) -> tuple[Ints, Columns]:
        """((k + 1,), values): a column of lists as offsets and a table of what they hold."""
        import pyarrow as pa

        column = self._column(name)
        self._require_filled(name, column)
        if not pa.types.is_list(column.type):
            raise self.fail(name, f"holds {column.type}; lists of {what} are needed")
        lengths = numbers_of(column.value_lengths())
        inner = Columns(self.path, pa.table({name: column.flatten()}), self._error)
        return np.concatenate(([0], np.cumsum(lengths))), inner

    def position(self) -> Floats | None:
        """(k, d) coordinates, ms, or None without coordinate columns.

        Raises:
            NovaError: when the columns' names do not run on from the first.
        """
        axes = [name for name in self.names if name in POSITION_KINDS]
        if not axes:
            return None
        expected = (
            list(AXES[: len(axes)])
            if axes[0] in AXES
            else [f"position_{axis}" for axis in range(len(axes))]
        )
        if sorted(axes) != sorted(expected):
            raise self._error(
                f"{self.path}: columns {', '.join(axes)}: coordinates are x, y, z or position_0, "
                "position_1, …"
            )
        return np.stack([self.floats(name) for name in expected], axis=1)


def read_columns(
    path: Path, kinds: Mapping[str, Kind] | None, error: type[NovaError], extra: bool = False
) -> Columns:
    """Read a table by its suffix: ``.parquet``, ``.arrow`` or ``.csv`` (also ``.csv.gz``).

    A directory of ``.parquet`` files, as Spark writes them, is one table: the files follow each
    other in the order of their names.

    Args:
        path: the file.
        kinds: what the known columns hold; None accepts any columns.
        error: class of the errors raised.
        extra: whether other columns than the known ones are left alone rather than refused.

    Raises:
        NovaError: of the given class, naming the file, and the row and column where known.
    """
    import pyarrow as pa

    parts = part_files(path, error) if path.is_dir() else [path]
    for part in parts:
        if not part.is_file():
            reason = "no file; pipes and devices are not read" if part.exists() else "no such file"
            raise error(f"{part}: cannot be read: {reason}")
        if part.stat().st_size == 0:
            raise error(f"{part}: empty; a table is expected")
    try:
        if path.suffix == ".gz":
            check_packed(path)
        tables = [_read(part, kinds or {}, error) for part in parts]
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        # Arrow decodes without checks; using invalid data would end the process.
        table.validate(full=True)
        names = table.column_names
    except PackedError as cause:
        raise error(f"{path}: {cause}") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError) as cause:
        raise error(f"{path}: {_readable(cause)}") from None
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise error(f"{path}: column {twice!r} is there twice")
    if kinds is not None and not extra:
        check_known(path, names, kinds, error)
    return Columns(path, table, error)


def check_known(
    path: Path, names: Iterable[str], kinds: Mapping[str, Kind], error: type[NovaError]
) -> None:
    """Refuse columns that a table does not have.

    Args:
        path: of the file.
        names: of its columns.
        kinds: of the known ones, by their names.
        error: what is raised, naming the column and what would be accepted.
    """
    from nova_core.suggestions import suggestion

    known = [k for k in kinds if k not in POSITION_KINDS] + list(AXES) * ("x" in kinds)
    for name in names:
        if name not in kinds:
            raise error(f"{path}: unknown column {name!r}; {suggestion(name, known)}")


def part_files(directory: Path, error: type[NovaError]) -> list[Path]:
    """The files of a table that is a directory, in the order of their rows.

    Raises:
        NovaError: of the given class, for a directory without any.
    """
    files = sorted(path for path in directory.glob("*.parquet") if path.name[0] not in "._")
    if not files:
        raise error(f"{directory}: holds no .parquet file; a table's parts are expected")
    return files


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A file of Parquet whose tables are in proportion to its size (`pyarrow.parquet.ParquetFile`).

    Raises:
        PackedError: for a file that unpacks to more than may be.
        pyarrow.ArrowException: for one that is no Parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Passed as an open file: by name, pyarrow takes key=value folders for partition columns.
    # Opened by Arrow: its threads release buffers after this returns; to release a buffer of a
    # Python file they need the interpreter, which ends the process with SIGABRT while the
    # interpreter shuts down. Names need not be UTF-8.
    with pa.OSFile(os.fsencode(path), "rb") as file:
        table = pq.ParquetFile(file, page_checksum_verification=True)
        facts = table.metadata
        check_size(file.size(), _CELL * facts.num_rows * facts.num_columns)
        yield table


def _read(path: Path, kinds: Mapping[str, Kind], error: type[NovaError]) -> Any:
    import pyarrow as pa

    if path.suffix == ".parquet":
        with open_parquet(path) as table:
            return table.read()
    if path.suffix == ".arrow":
        with pa.OSFile(os.fsencode(path), "rb") as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()
    if path.suffix == ".csv" or path.name.endswith(".csv.gz"):
        from pyarrow import csv

        types = {
            "text": pa.string(),
            "capacity": pa.string(),
            "number": pa.float64(),
            "flag": pa.bool_(),
            "whole": pa.int64(),
        }
        options = csv.ConvertOptions(
            column_types={name: types[kind] for name, kind in kinds.items()}, null_values=[""]
        )
        # Reading in one thread lets errors name the row.
        return csv.read_csv(
            open_input(path),
            read_options=csv.ReadOptions(use_threads=False, block_size=2**24),
            convert_options=options,
        )
    raise error(f"{path}: a table is a .parquet, .arrow or .csv file, not {path.suffix!r}")


def open_input(path: Path) -> Any:
    """A file as Arrow's readers of text take it, unpacked by its suffix; its name may be no UTF-8.

    Raises:
        OSError: when it cannot be opened.
    """
    import pyarrow as pa

    # Arrow takes names of files as UTF-8 text only where it opens them by name.
    compression = "gzip" if path.suffix == ".gz" else None
    return pa.input_stream(pa.OSFile(os.fsencode(path), "rb"), compression=compression)


def _readable(cause: Exception) -> str:
    text = " ".join(str(cause).split())
    conversion = re.match(
        r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid value "
        r"'(.*)'",
        text,
    )
    if conversion:
        column, row, kind, value = conversion.groups()
        named = {"double": "number", "bool": "true or false", "int64": "whole number"}
        place = f"row {int(row) - 1}, " if row else ""
        return f"{place}column {int(column) + 1}: {value!r} is no {named.get(kind, kind)}"
    return f"no readable table: {text[:200]}"


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns (numpy or Arrow arrays) as a table, by the path's suffix, atomically.

    Raises:
        NovaError: when it cannot be written.
    """
    import pyarrow as pa

    table = pa.table({name: _arrow(values) for name, values in columns.items()})
    with atomic_write(path) as file:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            # Other columns seldom repeat values often enough for a dictionary to pay.
            names = [one.name for one in table.schema if pa.types.is_dictionary(one.type)]
            pq.write_table(
                table, file, compression="zstd", write_page_checksum=True, use_dictionary=names
            )
        elif path.suffix == ".arrow":
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            from pyarrow import csv

            csv.write_csv(table, file)


def _arrow(values: Any) -> Any:
    if not isinstance(values, np.ndarray):
        return values
    return arrow_text(values) if values.dtype.kind == "U" else arrow_numbers(values)


def names_of(codes: Ints, ids: Strings) -> Any:
    """An Arrow column that says ``ids[codes]`` and stores every distinct name once.

    A code below 0 stands for no name.
    """
    import pyarrow as pa

    named = codes >= 0
    used = np.zeros(len(ids), bool)
    used[codes[named]] = True
    names = arrow_text(ids if used.all() else ids[used])
    codes = np.where(named, (np.cumsum(used) - 1)[codes], -1).astype(np.int32)
    if np.array_equal(codes, np.arange(len(names))):
        return names  # each once, in order: nothing to code
    return pa.DictionaryArray.from_arrays(arrow_numbers(codes, named), names)


def lists_of(offset: Ints, codes: Ints, ids: Strings) -> Any:
    """An Arrow column of lists of names: row r is ``ids[codes[offset[r]:offset[r + 1]]]``."""
    import pyarrow as pa

    return pa.ListArray.from_arrays(arrow_numbers(offset.astype(np.int32)), names_of(codes, ids))
