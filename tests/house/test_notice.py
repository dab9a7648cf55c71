"""NOTICE: what Nova downloads, each with its licence, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from own_jobs_material import EXAMPLES, GATEWAY

from nova_engines.maven import read_artifacts
from nova_flink.home import requirements

from .test_constraints import pins

ROOT = Path(__file__).parents[2]


def test_everything_that_is_downloaded_is_listed_with_its_licence() -> None:
    lists = [*ROOT.glob("adapters/*/artifacts.txt"), *ROOT.glob("adapters/*/maven-plugin.txt")]
    assert len(lists) == 3
    jars = {one.coordinates for path in lists for one, _ in read_artifacts(path.read_text())}
    jars |= {one.coordinates for one in (EXAMPLES, *GATEWAY)}
    lines = re.findall(r"^  (\S+) \| (\S.*)$", (ROOT / "NOTICE").read_text(), re.MULTILINE)
    assert {name for name, _ in lines} == {*jars, *requirements(), *pins()}


def test_all_files_of_downloads_are_among_those() -> None:
    """A new list of checksums is a new list of downloads."""
    with_checksums = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("adapters/**/*.txt")
        if re.search(r"\b[0-9a-f]{64}\b", path.read_text())
    }
    assert with_checksums == {
        "adapters/nova_engines/maven-plugin.txt",
        "adapters/nova_flink/flink-requirements.txt",
        "adapters/nova_kafka/artifacts.txt",
        "adapters/nova_storm/artifacts.txt",
    }
