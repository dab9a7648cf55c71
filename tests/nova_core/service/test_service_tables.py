"""Problems as tables: an archive is taken apart strictly, and like a document after that."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import PROBLEM, Service
from starlette.testclient import TestClient

from nova_core.errors import ProblemError
from nova_core.io.assembly import Assembly
from nova_core.io.files import write_problem
from nova_core.io.problem_document import ProblemDocument
from nova_core.model.problem import Problem
from nova_core.service.archives import TAR, unpack


@pytest.fixture
def problem() -> Problem:
    return Assembly(msgspec.convert(PROBLEM, ProblemDocument), Path("field.json")).problem()


@pytest.fixture
def tables(problem: Problem, tmp_path: Path) -> Path:
    """What `nova generate` writes of a problem, of the field."""
    write_problem(problem, tmp_path / "field")
    return tmp_path / "field"


def archive_of(tables: Path, *more: tuple[str, bytes], kind: int = tarfile.USTAR_FORMAT) -> bytes:
    """Tables, and entries after them, each with a name and what it holds."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as tar:
        for path in sorted(tables.iterdir()):
            tar.add(path, path.name)
        for name, content in more:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def special(kind: bytes, name: str = "links.parquet", target: str = "/etc/passwd") -> bytes:
    """The header of an entry of some type."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry.tobuf(tarfile.USTAR_FORMAT)


def sized(size: bytes) -> bytes:
    """The header of a table that says it has some size."""
    header = bytearray(special(tarfile.REGTYPE, target=""))
    header[124:136] = size.ljust(12, b"\0")
    return bytes(header)


def post(client: TestClient, content: bytes) -> tuple[int, str]:
    answer = client.post("/problems", content=content, headers={"Content-Type": TAR})
    return answer.status_code, answer.json().get("error", "")


def kept(tmp_path: Path) -> list[str]:
    """All that the service has of problems."""
    return sorted(path.name for path in (tmp_path / "data" / "problems").iterdir())


@pytest.mark.parametrize("by", ["tar", "ustar", "gnu", "pax"])
def test_tables_are_the_problem_that_a_document_is(
    service: Service, tables: Path, problem: Problem, tmp_path: Path, by: str
) -> None:
    if by == "tar":
        content = subprocess.run(["tar", "-C", str(tables), "-c", "."], capture_output=True).stdout
    else:
        content = archive_of(tables, kind=getattr(tarfile, f"{by.upper()}_FORMAT"))
    client = service(limit=2**20)
    answer = client.post("/problems", content=content, headers={"Content-Type": TAR})
    assert (answer.status_code, answer.json()["id"]) == (201, problem.digest)
    again = client.post("/problems", json=PROBLEM)
    assert (again.status_code, again.json()) == (200, answer.json())
    request = {"name": "field", "problem": problem.digest}
    assert client.post("/placements", json=request).status_code == 201
    assert kept(tmp_path) == [problem.digest]


END = bytes(1024)
# What an archive ends with instead of its end, and what is said of it.
ENDS: list[tuple[bytes, str]] = [
    (special(tarfile.SYMTYPE) + END, "'links.parquet' is no plain file, but of type '2'"),
    (special(tarfile.LNKTYPE) + END, "is no plain file, but of type '1'"),
    (special(tarfile.FIFOTYPE) + END, "is no plain file, but of type '6'"),
    (special(tarfile.CHRTYPE) + END, "is no plain file, but of type '3'"),
    (special(tarfile.DIRTYPE, "links.parquet/") + END, "is no plain file, but of type '5'"),
    (special(tarfile.DIRTYPE, "..") + END, "is no plain file, but of type '5'"),
    (special(tarfile.GNUTYPE_SPARSE) + END, "is no plain file, but of type 'S'"),
    (special(tarfile.GNUTYPE_LONGNAME) + END, "is no plain file, but of type 'L'"),
    (special(tarfile.REGTYPE, "../links.parquet") + END, "'../links.parquet' is no file of a"),
    (special(tarfile.REGTYPE, "/etc/passwd") + END, "'/etc/passwd' is no file of a problem"),
    (special(tarfile.REGTYPE, "./.././links.parquet") + END, "is no file of a problem"),
    (special(tarfile.REGTYPE, 120 * "d" + "/links.parquet") + END, "is no file of a problem"),
    (special(tarfile.REGTYPE, "links.csv") + END, "expected are problem.yaml, problem.json, nod"),
    (special(tarfile.REGTYPE, "nodes.parquet") + END, "'nodes.parquet' is there twice"),
    (special(tarfile.REGTYPE, "problem.json") + END, "2 of problem.yaml and problem.json"),
    (sized(b"77777777777") + END, "'links.parquet' is cut off: of 8,589,934,591 bytes, 1,024"),
    (sized(b"\x80" + bytes(6) + b"\xff" * 5) + END, "'links.parquet' has the size"),
    (sized(b"\xff" * 12) + END, "'links.parquet' has the size"),
    (sized(b"-1") + END, "'links.parquet' has the size '-1'"),
    (sized(b"2000") + END[:1000], "'links.parquet' is cut off"),
    (END[:511], "it is cut off, or no tar"),
    (b"", "it is cut off, or no tar"),
    (b"x" * 512, "it is no tar"),
]


@pytest.mark.parametrize(("end", "message"), ENDS)
def test_an_archive_of_anything_else_is_refused(
    service: Service, tables: Path, tmp_path: Path, end: bytes, message: str
) -> None:
    whole = archive_of(tables)
    status, error = post(
        service(limit=2**20), whole[: len(whole.rstrip(b"\0")) // 512 * 512 + 512] + end
    )
    assert status == 400 and message in error
    assert "\n" not in error and str(tmp_path) not in error
    assert kept(tmp_path) == []


def test_a_sparse_file_of_the_new_kind_is_refused(tables: Path, tmp_path: Path) -> None:
    """GNU tar describes it in a record before it, and gives it another name."""
    with (tables / "links.parquet").open("wb") as file:
        file.truncate(2**40)
    command = ["tar", "-C", str(tables), "--sparse", "--format=posix", "-c", "links.parquet"]
    content = subprocess.run(command, capture_output=True, check=True).stdout
    assert len(content) < 2**20
    with pytest.raises(ProblemError, match=r"GNUSparseFile\S+ is no file of a problem"):
        unpack(content, tmp_path)


def test_names_in_records_mean_nothing(tables: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("links.parquet")
        entry.pax_headers = {"path": "../links.parquet", "size": "99999999", "mtime": "1.5"}
        tar.addfile(entry)
    assert unpack(file.getvalue(), tmp_path / "out") == {"links.parquet"}
    assert not (tmp_path / "links.parquet").exists()


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../field/nodes.parquet", "latency.parquet", "./nodes.parquet", ""]
)
@pytest.mark.parametrize("field", ["nodes", "latency"])
def test_a_document_names_files_of_its_archive_only(
    service: Service, tables: Path, tmp_path: Path, name: str, field: str
) -> None:
    document = (tables / "problem.yaml").read_text()
    if field == "nodes":
        document = document.replace("nodes: nodes.parquet", f"nodes: '{name}'")
    else:
        document += f"latency: {{file: '{name}'}}\n"
    (tables / "problem.yaml").write_text(document)
    status, error = post(service(limit=2**20), archive_of(tables))
    shown = "file" if field == "latency" else field
    assert (status, error) == (400, f"problem.yaml: {shown}: no file {name!r} in the archive")


def bomb(tables: Path) -> None:
    """Nodes that unpack to far more than they take."""
    many = pa.table({"id": pa.array(["n"] * 20_000_000).dictionary_encode()})
    pq.write_table(many, tables / "nodes.parquet")


def damaged(tables: Path) -> None:
    file = tables / "nodes.parquet"
    file.write_bytes(file.read_bytes()[:-20])


def wrong(tables: Path) -> None:
    content = pq.read_table(tables / "nodes.parquet")
    at = content.column_names.index("capacity")
    values = pa.array(np.full(len(content), -1.0))
    pq.write_table(content.set_column(at, "capacity", values), tables / "nodes.parquet")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (bomb, "nodes.parquet: "),
        (damaged, "nodes.parquet: no readable table"),
        (wrong, "nodes.parquet: nodes[0].capacity of 'thermometer': -1"),
        (lambda tables: (tables / "problem.yaml").unlink(), "archive: 0 of problem.yaml and"),
        (lambda tables: (tables / "matrix.parquet").unlink(), "matrix: no file 'matrix.parquet'"),
    ],
)
def test_tables_are_checked_like_files(
    service: Service, tables: Path, tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(tables)
    status, error = post(service(limit=2**22), archive_of(tables))
    assert status == 400 and message in error
    assert str(tmp_path) not in error and kept(tmp_path) == []


def test_nothing_stays_of_what_takes_too_long(
    service: Service, tables: Path, tmp_path: Path
) -> None:
    (tables / "problem.yaml").write_bytes(b"[" + b"[]," * 1_000_000 + b"[]]")  # takes seconds
    status, error = post(service(limit=2**22, job_seconds=2), archive_of(tables))
    assert status == 413 and "takes more than 2 s" in error
    assert kept(tmp_path) == []


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 511), st.binary(min_size=1, max_size=12))),
    st.integers(0, 4096),
)
def test_any_archive_is_unpacked_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, bytes]], length: int
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "in").mkdir()
    entry = tarfile.TarInfo("nodes.parquet")
    entry.size = 700
    content = bytearray(entry.tobuf(tarfile.USTAR_FORMAT) + b"x" * 1024 + sized(b"") + bytes(2048))
    for block, at, value in changes:
        content[512 * block + at : 512 * block + at + len(value)] = value
    try:
        names = unpack(bytes(content[:length]), outside / "in")
    except ProblemError:
        names = None
    assert [path.name for path in outside.iterdir()] == ["in"]
    there = {path.name for path in (outside / "in").iterdir()}
    assert there <= {"nodes.parquet", "links.parquet", *(names or ())}
    assert names is None or names == there
