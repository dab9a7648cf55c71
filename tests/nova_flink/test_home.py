"""The engine home: where it is, what makes it whole, what is said when it is not."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from needs_flink import require

from nova_engines.installing import STAMP, EngineError, java
from nova_flink import home
from nova_flink.home import FlinkHome


@pytest.fixture
def whole(tmp_path: Path) -> FlinkHome:
    """A directory that looks as an installation leaves it."""
    made = FlinkHome(tmp_path / "flink")
    (made.path / "bin").mkdir(parents=True)
    made.python.symlink_to(sys.executable)
    (made.flink / "lib").mkdir(parents=True)
    stamp = {"engine": "flink", "version": home.VERSION, "requirements": home.requirements()}
    (made.path / STAMP).write_text(json.dumps(stamp))
    return made


def test_default_place_follows_nova_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOVA_HOME", str(tmp_path))
    assert FlinkHome.default().path == tmp_path / "engines" / f"flink-{home.VERSION}"
    monkeypatch.delenv("NOVA_HOME")
    assert FlinkHome.default().path.is_relative_to(Path.home() / ".local" / "share" / "nova")


def test_check_names_the_command_that_helps(tmp_path: Path) -> None:
    missing = FlinkHome(tmp_path / "none")
    assert not missing.installed
    with pytest.raises(EngineError, match=r"not installed at .*nova engines install flink"):
        missing.check()


def test_whole_home_passes(whole: FlinkHome) -> None:
    whole.check()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", json.dumps({"engine": "flink", "version": "1.0", "requirements": []})]
)
def test_interrupted_or_old_installation_is_noticed(whole: FlinkHome, text: str) -> None:
    (whole.path / STAMP).write_text(text)
    with pytest.raises(EngineError, match="incomplete or of another version"):
        whole.check()


def test_python_that_is_gone_is_noticed(whole: FlinkHome) -> None:
    whole.python.unlink()
    whole.python.symlink_to("/nonexistent/python")
    assert not whole.installed


def test_flink_dist_is_last_on_the_class_path(whole: FlinkHome) -> None:
    assert whole.jars[-1].name == f"flink-dist-{home.VERSION}.jar"
    assert len(set(whole.jars)) == len(whole.jars)


def test_archives_older_than_the_extension_are_not_used(whole: FlinkHome) -> None:
    for name in (*(f"{p}.jsa" for p in home.PROCESSES), home.EXTENSION):
        (whole.path / name).write_bytes(b"")
        os.utime(whole.path / name, (1000, 1000))
    archive = whole.path / "taskmanager.jsa"
    assert whole.task_manager_options == (f"-XX:SharedArchiveFile={archive}",)
    assert archive in whole.runtime_files
    os.utime(whole.extension_jar, (2000, 2000))
    assert whole.task_manager_options == whole.job_manager_options == ()


def fake_java(directory: Path, version: str) -> None:
    (directory / "bin").mkdir()
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)


def test_java_is_taken_from_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == str(tmp_path / "bin" / "java")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EngineError, match=r"needs Java 17.*apt-get install"):
        java()


def test_missing_java_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"java: not found; .*apt-get install"):
        java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EngineError, match="has no bin/java"):
        java()


def no_such_wheel(directory: Path) -> str:
    """A file of requirements that pip cannot meet."""
    file = directory / "requirements.txt"
    file.write_text(f"{directory}/no-such-wheel.whl --hash=sha256:{64 * '0'}\n")
    return str(file)


def test_pip_may_take_nothing_but_what_has_one_of_the_hashes() -> None:
    text = (Path(home.__file__).parent / home.REQUIREMENTS).read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert "http" not in text
    hashes: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith(" "):
            name = line.split()[0]
            assert re.fullmatch(r"[a-z0-9.-]+==[0-9a-z.]+", name)
            hashes[name] = []
        else:
            found = re.fullmatch(r" +--hash=sha256:([0-9a-f]{64})( \\)?", line)
            assert found is not None, line
            hashes[name].append(found[1])
    assert list(hashes) == home.requirements()
    assert f"apache-flink=={home.VERSION}" in hashes
    assert all(hashes.values())


def test_a_package_that_is_not_what_it_was_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = tmp_path / "nova_nothing-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nova_nothing-1.dist-info/METADATA", "Name: nova-nothing\nVersion: 1\n")
    file = tmp_path / "requirements.txt"
    file.write_text(f"{wheel.as_uri()} --hash=sha256:{64 * '0'}\n")
    monkeypatch.setattr(home, "REQUIREMENTS", str(file))
    monkeypatch.setattr(home, "_run", partial(with_our_pip, home._run))
    made = FlinkHome(tmp_path / "flink")
    with pytest.raises(
        EngineError, match=f"not what was checked: .*nova_nothing-1.*Got +{digest(wheel)}"
    ):
        made.install()
    assert not made.installed


def with_our_pip(run: Callable[[list[str]], None], command: list[str]) -> None:
    """Run a command; an environment gets the pip of this one, as its own takes seconds to make."""
    if "venv" not in command:
        run(command)
        return
    run([*command[:-1], "--without-pip", command[-1]])
    (packages,) = Path(command[-1]).glob("lib/python3*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib"))


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_failing_pip_is_one_line_and_leaves_no_stamp(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(home, "REQUIREMENTS", no_such_wheel(tmp_path))
    made = FlinkHome(tmp_path / "engines" / "flink")
    told: list[str] = []
    with pytest.raises(EngineError, match="failed: ") as caught:
        made.install(told.append)
    assert "\n" not in str(caught.value)
    assert told
    assert not made.installed
    # Begun again, what is there is cleared away first.
    (made.path / "left-over").write_text("")

    def nothing_left(command: list[str]) -> None:
        assert not (made.path / "left-over").exists()
        raise EngineError(command[0])

    monkeypatch.setattr(home, "_run", nothing_left)
    with pytest.raises(EngineError, match=re.escape(home._python())):
        made.install()


@pytest.mark.e2e
def test_second_installation_waits_for_the_first(tmp_path: Path) -> None:
    """Two at once: the later one says that it waits, and both end in the same error."""
    code = f"""
import sys
from pathlib import Path
from nova_flink import home
home.REQUIREMENTS = "{no_such_wheel(tmp_path)}"
home.FlinkHome(Path("{tmp_path}/flink")).install(print)
"""
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True)
        for _ in range(2)
    ]
    out = [process.communicate(timeout=120) for process in both]
    assert sum("waiting for another" in stdout for stdout, _ in out) == 1
    assert all(re.search("EngineError: .*failed", stderr) for _, stderr in out)


@pytest.mark.e2e
def test_installed_home_has_what_it_names() -> None:
    made = FlinkHome.default()
    require(made)
    assert [path for path in made.runtime_files if not path.is_file()] == []
    version = "from pyflink.version import __version__; print(__version__)"
    told = subprocess.run([made.python, "-c", version], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == made.version == home.VERSION
