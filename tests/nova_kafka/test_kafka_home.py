"""Getting Kafka's jars: all of them with the right checksums, or nothing and a line that helps."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_maven import fake_maven, pin_plugin

from nova_core.commands.engines import engines
from nova_core.engines import load
from nova_core.errors import NovaError
from nova_engines.installing import EngineError
from nova_engines.jars import JarsHome
from nova_engines.maven import Artifact
from nova_kafka import home
from nova_kafka.broker import Broker

OFFLINE = """\
cat <<'END'
[INFO] Scanning for projects...
[ERROR] Failed to execute goal org.apache.maven.plugins:maven-dependency-plugin:2.10:copy \
(default-cli) on project engine: Unable to find artifact. Cannot access central in offline mode \
-> [Help 1]
[ERROR]
END
exit 1
"""
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


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only directory on the PATH."""
    pin_plugin(monkeypatch)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "sed", "cat", "mkdir"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("NOVA_HOME", str(tmp_path))
    return programs


def left_over(made: JarsHome) -> list[str]:
    return [p.name for p in made.path.parent.iterdir() if not p.name.endswith(".lock")]


def test_every_jar_is_pinned() -> None:
    broker, flink = home.artifacts("broker"), home.artifacts("flink")
    assert len({one.coordinates for one in broker}) == len(broker) > 40
    assert all(re.fullmatch("[0-9a-f]{64}", one.sha256) for one in (*broker, *flink))
    assert {o.version for o in broker if o.group == "org.apache.kafka"} == {home.VERSION}
    assert [one.version for one in flink] == [home.CONNECTOR_VERSION]


@pytest.mark.parametrize("made", [home.broker_home, home.connectors_home])
@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (None, r" needs Maven: mvn: not found; `apt-get install .*maven`"),
        (OFFLINE, "^Maven cannot get the jars: .*Cannot access central in offline mode$"),
        (SERVES, "checksum [0-9a-f]{64}, expected [0-9a-f]{64}: the download is broken"),
        ("exit 0", "Maven has not brought .*jar"),
    ],
)
def test_what_fails_is_one_line_and_leaves_nothing(
    path: Path, made: object, script: str | None, complaint: str
) -> None:
    assert callable(made)
    wanted = made()
    if script is not None:
        fake_maven(path, script)
    with pytest.raises(EngineError, match=complaint) as caught:
        wanted.install()
    assert "\n" not in str(caught.value)
    assert left_over(wanted) == []
    with pytest.raises(EngineError, match=f"not installed at .*nova engines install {wanted.name}"):
        wanted.check()


def test_a_whole_home_replaces_an_old_one(path: Path) -> None:
    fake_maven(path, SERVES)
    right = hashlib.sha256(b"not the jar\n").hexdigest()
    served = tuple(Artifact(o.group, o.name, o.version, right) for o in home.artifacts("broker"))
    made = replace(home.broker_home(), artifacts=served)
    made.path.mkdir(parents=True)
    (made.path / "left-over").write_text("")
    with pytest.raises(EngineError, match="incomplete or of another version"):
        made.check()
    told: list[str] = []
    made.install(told.append)
    made.check()
    assert f"{len(served)} of {len(served)} jars: " in told[-1]
    assert left_over(made) == [made.path.name]
    assert not (made.path / "left-over").exists()
    # Nothing is done where it is there already, not even with Maven gone.
    (path / "mvn").unlink()
    made.install()
    made.jars[0].unlink()
    assert not made.installed


def test_installing_kafka_brings_what_flink_reads_it_with(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_maven(path, SERVES)
    jar = hashlib.sha256(b"not the jar\n").hexdigest()
    known = home.artifacts
    monkeypatch.setattr(
        home, "artifacts", lambda use: tuple(replace(one, sha256=jar) for one in known(use))
    )
    kafka = load("kafka")
    assert not kafka.installed()
    kafka.install(lambda message: None)
    assert home.broker_home().installed and home.connectors_home().installed
    assert kafka.installed()
    home.connectors_home().jars[0].unlink()
    assert not kafka.installed()


def test_the_command_line_knows_it(path: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(engines, ["list"])
    assert "kafka" in told.stdout
    assert "Flink's connector" in told.stdout.replace("\n", " ")
    refused = CliRunner().invoke(engines, ["path", "kafka"])
    assert "run `nova engines install kafka`" in str(refused.exception)
    with pytest.raises(NovaError, match="runs no plan itself"):
        load("kafka").translate(None, None, tmp_path, {})  # type: ignore[arg-type]


def test_a_broker_at_an_ipv6_address() -> None:
    broker = Broker("fd00::1", "/data", "/jars")
    assert broker.servers == "[fd00::1]:9092"
    properties = broker.files()["server.properties"]
    assert "advertised.listeners=PLAINTEXT://[fd00::1]:9092\n" in properties
    assert "controller.quorum.voters=1@[fd00::1]:9093\n" in properties
