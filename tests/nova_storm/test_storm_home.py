"""Getting Storm's jars: all of them with the right checksums, or nothing and a line that helps."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from fake_maven import fake_maven, pin_plugin

from nova_engines import maven
from nova_engines.installing import STAMP, EngineError
from nova_engines.maven import Artifact, fetch
from nova_storm import home
from nova_storm.home import StormHome, artifacts

# As Maven 3.8 writes it, host and all left out.
OFFLINE = """\
[INFO] Scanning for projects...
[ERROR] Failed to execute goal org.apache.maven.plugins:maven-dependency-plugin:2.10:copy \
(default-cli) on project engine: Unable to find artifact. Cannot access central in offline mode \
-> [Help 1]
[ERROR]
[ERROR] To see the full stack trace of the errors, re-run Maven with the -e switch.
"""


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only directory on the PATH, with Java in it."""
    pin_plugin(monkeypatch)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("java", "javac", "sh", "sed", "cat", "mkdir"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return programs


def left_over(made: StormHome) -> list[str]:
    """What an installation has left behind, besides its lock."""
    parent = made.path.parent
    return [p.name for p in parent.iterdir() if not p.name.endswith(".lock")]


# Writes a file for every artifact of the POM to where the POM says.
SERVES = r"""
out=$(sed -n 's/.*<outputDirectory>\(.*\)<.*/\1/p' pom.xml)
mkdir -p "$out"
sed -n 's/.*<artifactId>\(.*\)<\/artifactId><version>\(.*\)<\/version><\/artifactItem>/\1-\2/p' \
  pom.xml | while read -r name; do
  echo "not the jar" > "$out/$name.jar"
  echo "[INFO] Copying $name.jar to $out/$name.jar"
done
"""


def test_every_jar_is_pinned() -> None:
    known = artifacts()
    assert len({one.coordinates for one, _ in known}) == len(known) > 40
    assert all(re.fullmatch("[0-9a-f]{64}", one.sha256) for one, _ in known)
    storm = {one.name: worker for one, worker in known if one.group == "org.apache.storm"}
    assert storm == {
        "storm-client": True,
        "storm-server": False,
        "flux-core": False,
        "storm-shaded-deps": True,
    }
    versions = {one.version for one, _ in known if one.group == "org.apache.storm"}
    assert versions == {home.VERSION}


def test_missing_maven_is_one_line(path: Path, tmp_path: Path) -> None:
    made = StormHome(tmp_path / "engines" / "storm")
    with pytest.raises(EngineError, match=r"^Storm needs Maven: mvn: not found; `apt-get install"):
        made.install()
    assert left_over(made) == []


def test_missing_java_is_one_line(path: Path, tmp_path: Path) -> None:
    (path / "java").unlink()
    with pytest.raises(EngineError, match=r"^java: not found; Storm needs Java 17"):
        StormHome(tmp_path / "engines" / "storm").install()


def test_offline_gives_mavens_reason_and_leaves_nothing(path: Path, tmp_path: Path) -> None:
    fake_maven(path, f"cat <<'END'\n{OFFLINE}END\nexit 1")
    made = StormHome(tmp_path / "engines" / "storm")
    with pytest.raises(EngineError) as caught:
        made.install()
    assert str(caught.value) == (
        "Maven cannot get the jars: Unable to find artifact. Cannot access central in offline mode"
    )
    assert left_over(made) == []
    assert not made.installed


def test_broken_download_is_refused_and_leaves_nothing(path: Path, tmp_path: Path) -> None:
    fake_maven(path, SERVES)
    made = StormHome(tmp_path / "engines" / "storm")
    told: list[str] = []
    with pytest.raises(EngineError) as caught:
        made.install(told.append)
    first = artifacts()[0][0]
    wrong = hashlib.sha256(b"not the jar\n").hexdigest()
    assert f"{first.coordinates}: checksum {wrong}, expected {first.sha256}" in str(caught.value)
    assert first.repository_path in str(caught.value)
    assert "\n" not in str(caught.value)
    assert left_over(made) == []
    assert f"{len(artifacts())} of {len(artifacts())} jars: " in told[-1]


def test_jar_that_maven_left_out_is_named(path: Path, tmp_path: Path) -> None:
    fake_maven(path, "exit 0")
    with pytest.raises(EngineError, match=r"kryo:.*: Maven has not brought kryo-"):
        StormHome(tmp_path / "engines" / "storm").install()


def test_whole_home_is_made_and_an_old_one_replaced(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_maven(path, SERVES)
    right = hashlib.sha256(b"not the jar\n").hexdigest()
    served = tuple((Artifact(o.group, o.name, o.version, right), w) for o, w in artifacts())
    monkeypatch.setattr(home, "artifacts", lambda: served)
    made = StormHome(tmp_path / "engines" / "storm")
    made.path.mkdir(parents=True)
    (made.path / "left-over").write_text("")
    # What was served cannot be compiled against: the jars are there, Nova's are not.
    with pytest.raises(Exception, match="javac ended with code"):
        made.install()
    assert made.installed
    assert not (made.path / "left-over").exists()
    assert left_over(made) == ["storm"]
    workers = {p.name for p in (made.path / "lib-worker").iterdir()}
    assert workers == {one.file for one, worker in served if worker}
    assert all(p.is_file() for p in (made.path / "lib-worker").iterdir())
    with pytest.raises(EngineError, match="nova engines install storm"):
        made.check()
    made.jars[0].unlink()
    assert not made.installed


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"engine": "storm"})])
def test_interrupted_or_old_installation_is_noticed(tmp_path: Path, text: str) -> None:
    made = StormHome(tmp_path)
    (tmp_path / STAMP).write_text(text)
    with pytest.raises(EngineError, match="incomplete or of another version"):
        made.check()


def test_pom_names_what_is_asked_and_nothing_else(tmp_path: Path, path: Path) -> None:
    fake_maven(path, f"cat pom.xml > '{tmp_path}/pom'; exit 3")
    one = Artifact("a.b", "c", "1.2", "0" * 64)
    with pytest.raises(EngineError, match="it says nothing"):
        fetch([one], tmp_path / "a&b", print, "Storm")
    pom = (tmp_path / "pom").read_text()
    assert "a&amp;b</outputDirectory>" in pom
    assert pom.count("<artifactItem>") == 1
    assert one.repository_path == "a/b/c/1.2"
    assert maven.PLUGIN.split(":")[2] in pom


@pytest.mark.parametrize(
    ("loads", "content", "complaint"),
    [
        ("fake:plugin:jar:1", b"another", "^fake:plugin:1: checksum .*, expected .*fake/plugin/1"),
        ("fake:other:jar:1", b"", "^Maven loads fake:other:1 for .*, which is not in Nova's"),
        ("", b"", "^Maven does not say which jars it loads"),
    ],
)
def test_a_plug_in_that_is_not_the_published_one_never_runs(
    tmp_path: Path, path: Path, loads: str, content: bytes, complaint: str
) -> None:
    fake_maven(path, f"echo ran > '{tmp_path}/ran'", loads, content)
    with pytest.raises(EngineError, match=complaint):
        fetch([Artifact("a.b", "c", "1.2", "0" * 64)], tmp_path / "jars", print, "Storm")
    assert not (tmp_path / "ran").exists()


def test_the_plug_in_is_pinned() -> None:
    text = (Path(maven.__file__).with_name(maven.PLUGIN_JARS)).read_text()
    pinned = [one for one, _ in maven.read_artifacts(text)]
    assert len({one.coordinates for one in pinned}) == len(pinned) > 50
    assert all(len(one.sha256) == 64 for one in pinned)
    assert maven.PLUGIN.removesuffix(":copy") in {one.coordinates for one in pinned}
