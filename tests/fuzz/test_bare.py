"""Without extras, every command works or names its extra in one line; an extra needs no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.test_serve import service, upload
from nova_harness.bench.live import live_problem

from .bare import LEFT_OUT, MORE, make_material, requirement
from .uses import USES, command_of, commands

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid files of every kind."""
    place = tmp_path_factory.mktemp("material") / "files"
    make_material(place)
    return place


def walk(material: Path, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.bare", "--material", str(material)]
    command += map(str, arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_every_command_is_tried() -> None:
    known = dict(commands())
    tried = {command_of(use, known) for use in (*USES, *MORE)}
    assert tried | LEFT_OUT == set(known)
    assert not tried & LEFT_OUT


PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of the product's wheel of this checkout, without extras; research's beside."""
    place = tmp_path_factory.mktemp("bare")
    clone, venv = place / "clone", place / "venv"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    subprocess.run([*PIP, "wheel", "--no-deps", "-w", place, clone, clone / "research"], check=True)
    (wheel,) = place.glob("nova_placement-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    install(venv, str(wheel), place)
    return venv


def install(venv: Path, what: str, wheels: Path) -> None:
    # Modules are compiled as they are used: most of large packages are not.
    command = [*PIP, "--python", venv / "bin" / "python", "install", "--no-compile"]
    command += ["-c", CONSTRAINTS]
    command += ["--find-links", wheels, what]
    subprocess.run(command, check=True)


@pytest.mark.e2e
def test_commands_of_a_bare_wheel(bare: Path, material: Path) -> None:
    walk(material, "--nova", bare / "bin" / "nova")


@pytest.mark.e2e
@pytest.mark.parametrize(
    "extra",
    [
        *("annoy", "kafka", "queries", "testbed", "serve", "spark", "experiment"),
        *("research", "learn"),
    ],
)
def test_an_extra_is_complete_by_itself(
    bare: Path, material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    """Nothing that it is for ends for lack of another one."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    # What the bare environment has need not be installed again.
    (packages,) = bare.glob("lib/python*/site-packages")
    mine = venv / packages.relative_to(bare)
    (mine / "bare.pth").write_text(f"{packages}\n")
    install(venv, requirement(extra), bare.parent)
    nova = venv / "bin" / "nova"
    text = (bare / "bin" / "nova").read_text()
    nova.write_text(text.replace(str(bare), str(venv)))
    nova.chmod(0o755)
    walk(material, "--nova", nova, "--extra", extra)
    if extra == "serve":  # which does not end by itself
        monkeypatch.delenv("PYTHONPATH", raising=False)
        with service(tmp_path / "data", [nova]) as (url, _):
            upload(url, tmp_path / "problem", live_problem(20, seed=0))
