"""Files made to take all memory, the stack, or the process with them.

Bombs go off in processes that may take little memory, so that code without bounds fails here and
leaves the machine alone.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from nova_core.errors import NovaError, ProblemError
from nova_core.io.columnar import read_columns, write_columns
from nova_core.io.files import read_problem, write_problem
from nova_core.io.packed import PackedError, unpacked
from nova_core.io.syntax import convert, parse_bytes

MEMORY = 2 * 2**30

READ = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from pathlib import Path
from nova_core.errors import NovaError
from nova_core.io.files import read_problem
from nova_core.costspace.latency_files import column_names
try:
    (read_problem if sys.argv[2] == "problem" else column_names)(Path(sys.argv[1]))
except NovaError as error:
    sys.exit(str(error))
"""


def refused(path: Path, what: str = "problem") -> str:
    """What a reader with little memory says of a file it refuses."""
    run = subprocess.run(
        [sys.executable, "-c", READ, str(path), what], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1, run.returncode
    assert run.stderr.count("\n") == 1, run.stderr
    return run.stderr


def parsed(text: str) -> object:
    return parse_bytes(text.encode(), Path("d.yaml"), NovaError)


# --- YAML -----------------------------------------------------------------------------------------


def test_aliases_do_not_multiply_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    node = "{id: n, capacity: 5, tags: [" + "a, " * 1000 + "a]}"
    many = ", ".join(["*n"] * 70_000)
    path.write_text(f"nova: 1\nquery: {{operators: []}}\nsources: []\nnodes: [&n {node}, {many}]\n")
    assert "values, of which aliases make 7" in refused(path)
    lists = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    path.write_text("nova: 1\na0: &a0 [x]\n" + "\n".join(lists))
    assert "114 values, of which aliases make 2,345,679,02" in refused(path)


def test_aliases_people_write_are_read() -> None:
    rows = "\n".join(f"  - {{<<: *usual, id: n{i}}}" for i in range(5000))
    found = parsed(f"usual: &usual {{capacity: 5, tags: [a, b]}}\nnodes:\n{rows}\n")
    assert found["nodes"][-1] == {"capacity": 5, "tags": ["a", "b"], "id": "n4999"}
    assert parsed("a: 1 & 2 * 3\nb: [" + "[1], " * 500 + "]")["a"] == "1 & 2 * 3"


@pytest.mark.parametrize("text", ["a: &a [*a]", "&a {b: &c {d: [*a]}}"])
def test_an_alias_of_what_it_is_part_of(text: str) -> None:
    with pytest.raises(NovaError, match="what it is a part of"):
        parsed(text)


@pytest.mark.parametrize("text", ["[", "{a: ", "- ", "? ", "-  "])
def test_deep_documents(text: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(text * 100_000)
    assert "nested too deeply" in (message := refused(path))
    assert "line 1, column " in message or text != "["


@pytest.mark.parametrize("tag", ["bool", "timestamp", "int", "float", "binary", "omap", "pairs"])
def test_tags_of_what_they_are_not(tag: str) -> None:
    with pytest.raises(NovaError, match=r"d\.yaml: "):
        parsed(f"a: !!{tag} ''" if tag == "int" else f"a: !!{tag} x")


class Part(Struct):
    small: Annotated[float, Meta(ge=0.05)]
    large: Annotated[float, Meta(le=10.0)] = 1


def test_messages_keep_their_digits() -> None:
    for document, said in (
        ({"small": 0}, "a number >= 0.05 is expected"),
        ({"small": 1, "large": 11}, "a number <= 10 is expected"),
    ):
        with pytest.raises(NovaError, match=said):
            convert(document, Path("d.yaml"), Part, NovaError)


def test_half_a_character_is_no_text() -> None:
    # Engines' files are UTF-8, which cannot hold it.
    with pytest.raises(NovaError, match=r"d\.json: '\\ud800' is half a character"):
        parse_bytes(b'{"id": "a\\ud800"}', Path("d.json"), NovaError)
    with pytest.raises(NovaError, match=r"d\.yaml: line 1, column 9"):
        parsed('id: "a\\ud800"')
    assert parse_bytes(b'["\\ud83d\\ude00"]', Path("d.json"), NovaError) == ["\U0001f600"]


# --- gzip -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Less than a megabyte that unpacks to 800 MiB of zeros without an end of line."""
    path = tmp_path_factory.mktemp("bomb") / "latency.csv.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(800):
            file.write(b"0" * 2**20)
    assert path.stat().st_size < 2**20
    return path


PROBLEM = """\
nova: 1
nodes:
  - {id: a, capacity: 5, position: [0, 0]}
  - {id: b, capacity: 5, position: [1, 0]}
sources:
  - {id: s, node: a, stream: T, rate: 1}
  - {id: t, node: b, stream: W, rate: 1}
query: {operators: [{id: j, left: T, right: W, sink: b}]}
"""


def test_packed_latencies_have_a_bound(bomb: Path) -> None:
    document = bomb.with_name("problem.yaml")
    unplaced = re.sub(r", position: \[., .\]", "", PROBLEM)
    document.write_text(unplaced + "latency: {file: latency.csv.gz}\n")
    assert "that unpack to" in refused(document)
    assert "that unpack to" in refused(bomb, "columns")


def test_packed_tables_have_a_bound(bomb: Path) -> None:
    document = bomb.with_name("tables.yaml")
    document.write_text(PROBLEM + "tables: {matrix: latency.csv.gz}\n")
    assert "that unpack to" in refused(document)


def test_parquet_has_a_bound(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 30_000_000
    table = pa.table({"left": pa.repeat("s", rows)})
    pq.write_table(table, tmp_path / "matrix.parquet", compression="zstd")
    assert (tmp_path / "matrix.parquet").stat().st_size < 2**20
    document = tmp_path / "problem.yaml"
    document.write_text(PROBLEM + "tables: {matrix: matrix.parquet}\n")
    assert "that unpack to" in refused(document)


def test_limits_are_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    content = gzip.compress(b"0" * 20 * 2**20)
    with pytest.raises(PackedError, match="100 times as many, and 2,048 MiB"):
        unpacked(content)
    monkeypatch.setenv("NOVA_UNPACKED_RATIO", "2000")
    assert len(unpacked(content)) == 20 * 2**20
    monkeypatch.setenv("NOVA_UNPACKED_MIB", "17")
    with pytest.raises(PackedError, match="17 MiB"):
        unpacked(content)
    monkeypatch.setenv("NOVA_UNPACKED_MIB", "much")
    with pytest.raises(PackedError, match="a whole number >= 1 is expected"):
        unpacked(content)
    monkeypatch.undo()
    assert unpacked(gzip.compress(b"0" * 10 * 2**20)) == b"0" * 10 * 2**20


# --- tables ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem of 200 nodes in Parquet."""
    from nova_workloads.topology import generate

    place = tmp_path_factory.mktemp("tables") / "problem"
    write_problem(generate(nodes=200), place)
    return place


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_flipped_bits(suffix: str, tables: Path, tmp_path: Path) -> None:
    write_problem(read_problem(tables), f"{tmp_path}/flipped/", tables=suffix)
    files = sorted((tmp_path / "flipped").glob(f"*.{suffix}"))
    refusals = 0
    for seed in range(200):
        chance = random.Random(seed)
        file = chance.choice(files)
        content = file.read_bytes()
        changed = bytearray(content)
        first = max(0, len(changed) - 2000) if chance.random() < 0.5 else 0
        for _ in range(chance.choice([1, 3, 20])):
            changed[chance.randrange(first, len(changed))] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        try:
            read_problem(tmp_path / "flipped")
        except NovaError as error:
            refusals += 1
            assert str(error).startswith(str(tmp_path / "flipped"))
        file.write_bytes(content)
    assert refusals > 100


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "joins.csv").write_text("left,right,left_rate,right_rate,output_rate\n")
    for content in (
        b"n\xffde,x,y,role,capacity_0\n",
        b"node,x,y,role,capacity\nn\xff,0,0,sink,5\n",
    ):
        (tmp_path / "nodes.csv").write_bytes(content)
        with pytest.raises(ProblemError, match=r"nodes\.csv: no readable table"):
            read_problem(tmp_path)


def test_a_directory_of_an_instance_whose_name_is_no_text(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"\xff")
    directory.mkdir()
    (directory / "nodes.csv").write_text(
        "node,x,y,role,capacity_0\na,0,0,sink,5\nb,1,1,source,5\nc,2,1,source,5\n"
    )
    (directory / "joins.csv").write_text("left,right,left_rate,right_rate,output_rate\nb,c,1,1,1\n")
    assert read_problem(directory).name == "\ufffd"


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "csv.gz"])
def test_names_of_files_that_are_not_utf8(suffix: str, tables: Path, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"n\xffdes." + suffix.encode())
    columns = read_columns(tables / "nodes.parquet", None, NovaError)
    if suffix == "csv.gz":
        path.write_bytes(gzip.compress(b"id\na\n"))
    else:
        write_columns(path, {"id": columns.text("id")})
    assert read_columns(path, None, NovaError).names == ["id"]


OPENED = """
import sys
from pathlib import Path
from nova_core.io.files import read_problem
opened = []
def hook(event, arguments):
    if event == "open":
        opened.append(str(arguments[0]))
sys.addaudithook(hook)
read_problem(Path(sys.argv[1]))
assert any(name.endswith("problem.yaml") for name in opened)
sys.exit(any(name.endswith(".parquet") for name in opened))
"""


def test_arrow_opens_parquet_itself(tables: Path) -> None:
    # Its threads drop buffers of a file of Python's after the read; when the interpreter is going
    # away meanwhile, that ends the process with SIGABRT.
    assert subprocess.run([sys.executable, "-c", OPENED, str(tables)], check=False).returncode == 0


@pytest.mark.parametrize("fault", ["no rows", "binary ids", "no numbers"])
def test_refused_tables_end_the_process_with_two(fault: str, tables: Path, tmp_path: Path) -> None:
    import shutil

    import pyarrow as pa
    import pyarrow.parquet as pq

    place = shutil.copytree(tables, tmp_path / "problem")
    nodes = pq.ParquetFile(place / "nodes.parquet").read()
    if fault == "no rows":
        nodes = nodes.slice(0, 0)
    elif fault == "binary ids":
        nodes = nodes.set_column(0, "id", nodes.column("id").cast(pa.string()).cast(pa.binary()))
    else:
        at = nodes.column_names.index("capacity")
        nodes = nodes.set_column(at, "capacity", pa.array([float("nan")] * len(nodes)))
    pq.write_table(nodes, place / "nodes.parquet")
    command = [str(Path(sys.executable).parent / "nova"), "plan", str(place)]
    for _ in range(8):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 2, run.stderr
        assert run.stderr.count("\n") == 1
