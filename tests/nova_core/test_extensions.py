"""What installed packages add by entry points."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from nova_core.errors import NovaError, ProblemError
from nova_core.extensions import Extensions
from nova_core.strategies import create


def install(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    found = {name: EntryPoint(name, place, "things") for name, place in places.items()}
    monkeypatch.setattr("nova_core.extensions._installed", lambda group, places: found)


def test_names_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, b="json:loads", a="json:dumps", last="json:load")
    assert Extensions("things", "thing").names() == ["a", "b", "last"]
    late = Extensions("things", "thing", order=lambda name: (name != "last", name))
    assert late.names() == ["last", "a", "b"]
    with pytest.raises(NovaError, match="thing: unknown 'c'; installed are last, a, b"):
        late.load("c")
    with pytest.raises(NovaError, match=r"file\.kind: unknown 'c'"):
        late.load("c", "file.kind")


@pytest.mark.parametrize("place", ["no_such_module:thing", "json:no_such_thing"])
def test_a_package_that_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    install(monkeypatch, broken=place)
    with pytest.raises(ProblemError, match=f"strategy broken: cannot load {place}: .*no_such_"):
        create("broken")


def test_what_is_installed_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []

    def counted(group: str) -> list[EntryPoint]:
        looked_up.append(group)
        return [EntryPoint("some", "nova_core.strategies.nova:Nova", group)]

    monkeypatch.setattr("nova_core.extensions.entry_points", counted)
    create_once = Extensions("a group of this test", "thing")
    for _ in range(3):
        create_once.load("some")
        create_once.names()
    assert looked_up == ["a group of this test"]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "needs_hosts.py").write_text("import paramiko\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "paramiko", None)
    install(monkeypatch, hosts="needs_hosts:thing")
    text = r"strategy hosts: needs the module paramiko; pip install 'nova-placement\[testbed\]'"
    with pytest.raises(ProblemError, match=f"^{text}$"):
        create("hosts")
