"""`nova bench guard`: this checkout's kernels against another commit's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nova_core.errors import NovaError
from nova_core.user_cache import user_cache
from nova_harness.bench import guard
from nova_harness.bench.commands import bench

ROOT = Path(__file__).resolve().parents[2]


def git(place: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], cwd=place, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    (tmp_path / "file").write_text("x")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_without_a_tag_the_other_commit_must_be_named(repository: Path) -> None:
    with pytest.raises(NovaError, match="no tag to compare with; name a commit with --against"):
        guard.last_tag(repository)
    git(repository, "tag", "v1")
    assert guard.last_tag(repository) == "v1"


def test_a_commit_that_does_not_exist() -> None:
    place = "no-such-commit"
    done = CliRunner().invoke(bench, ["guard", "--against", place, "--sizes", "200"])
    assert isinstance(done.exception, NovaError)
    assert f"'{place}' is no commit of {ROOT}" in str(done.exception)


def test_an_installed_nova_has_no_other_commits(tmp_path: Path) -> None:
    """Also inside somebody's repository, whose commits are not Nova's."""
    git(tmp_path, "init")
    site = tmp_path / "lib" / "site-packages"
    for package in ("nova_core", "harness/nova_harness"):
        shutil.copytree(
            ROOT / package,
            site / Path(package).name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    code = "from nova_harness.bench import guard; guard.checkout()"
    run = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "is not a git checkout of Nova" in run.stderr.splitlines()[-1]


def test_files_of_a_commit_are_kept(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what was compiled there, for the next comparison."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(repository / "cache"))
    place = guard.tree_of(repository, "HEAD")
    assert f"HEAD is now in {place}; its kernels are compiled first" in capsys.readouterr().err
    assert (place / "file").read_text() == "x"
    assert place.parent == repository / "cache" / "nova" / "guard"
    (place / "compiled").touch()
    assert guard.tree_of(repository, "HEAD") == place
    assert (place / "compiled").exists() and not capsys.readouterr().err
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.e2e
def test_ratios_of_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another commit's kernels would be compiled for minutes: it only says which events it has."""
    compiled = list(user_cache().glob("kernels-*"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    user_cache().mkdir()
    for kernels in compiled:
        (user_cache() / kernels.name).symlink_to(kernels)
    tree_of, trial, asked = guard.tree_of, guard._trial, list[Path]()

    def in_turn(name: str, tree: Path, kind: str, *arguments: Any) -> Any:
        if kind == "kinds" and name == "HEAD":
            asked.append(tree_of(ROOT, name))
            return trial(name, asked[0], kind, *arguments)
        return trial(name, tree, kind, *arguments)

    monkeypatch.setattr(guard, "tree_of", lambda root, _: root)
    monkeypatch.setattr(guard, "_trial", in_turn)
    sizes = ["--sizes", "200", "--query-sizes", "20", "--rounds", "1", "--repeat", "1"]
    done = CliRunner().invoke(
        bench, ["guard", "--against", "HEAD", *sizes, "--events", "10", "--json"]
    )
    assert done.exit_code == 0, done.output
    found = {one["step"]: one for one in json.loads(done.stdout)["measurements"]}
    steps = {"place", "place, refined", "queries, latency", "live, change-rate", "live, move-sink"}
    assert steps <= set(found)
    for one in found.values():
        assert one["before"] > 0 and one["now"] > 0
        assert one["ratio"] == pytest.approx(one["now"] / one["before"])
    assert [tree.parent for tree in asked] == [tmp_path / "nova" / "guard"]
