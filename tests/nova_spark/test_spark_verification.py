"""What verification makes of bad input; that it tells right from wrong is in test_spark_e2e.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_engines.documents import read, to_json
from nova_spark.rest import Rest
from nova_spark.verification import Record, Step


def test_a_record_survives_json(tmp_path: Path) -> None:
    record = Record("http://h:4040", "app-1", (Step("join a", "hub", (1, 5)), Step("b", "x", ())))
    (tmp_path / "record.json").write_text(to_json(record))
    assert read(tmp_path / "record.json", Record) == record


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "no such file"),
        ("{", "not JSON"),
        ("{}", "url is missing"),
        ('{"url": "", "application": "", "steps": [{"name": 1}]}', r"steps\[0\]: node is missing"),
    ],
)
def test_wrong_records_are_said(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "record.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(NovaError, match=f"{path}.*{complaint}"):
        read(path, Record)


def test_a_record_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b'{"url": "\xb1"}')
    with pytest.raises(NovaError, match=f"{path}: cannot be read as text"):
        read(path, Record)


def test_no_answer_is_said(tmp_path: Path) -> None:
    with pytest.raises(NovaError, match=r"http://127\.0\.0\.1:9: no answer from Spark"):
        Rest("http://127.0.0.1:9/", "app-1").executors()
    path = tmp_path / "record.json"
    path.write_text(to_json(Record("http://127.0.0.1:9", "app-1", ())))
    for arguments, complaint in (
        ([], "no answer from Spark"),
        (["--plan", str(path)], "--plan and --problem: give both, or neither"),
    ):
        command = ["cluster", "verify", str(path), "-e", "spark", "--at", "record", *arguments]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 2
        assert complaint in " ".join(done.output.split())
