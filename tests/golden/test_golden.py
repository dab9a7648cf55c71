"""Nova answers as recorded; if it should not, `python -m tests.golden --write` records anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .comparison import differences, plain, text_of
from .recording import EXPECTED, HERE, cases, recorded, run

CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_answers_are_as_recorded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = json.loads(text_of(CASES[name]()))
    lines = list(differences(recorded(name), answer, f"{name}.json"))
    assert not lines, "\n".join([*lines[:40], f"new documents: {tmp_path}"])


def test_every_golden_has_a_case() -> None:
    names = {str(path.relative_to(EXPECTED).with_suffix("")) for path in EXPECTED.rglob("*.json")}
    assert names == set(CASES)


def test_every_kind_of_event_occurs() -> None:
    kinds = set(json.loads(run("schema", "event").stdout)["discriminator"]["mapping"])
    texts = "".join(path.read_text() for path in (HERE / "events").iterdir())
    assert not [kind for kind in kinds if f'"event": "{kind}"' not in texts]


def test_a_difference_is_named() -> None:
    old = {"nova": {"hosts": {"a": "x"}, "n": 1}, "lines": ["one", "two"], "gone": 1}
    new = {"nova": {"hosts": {"b": "x"}, "n": 1}, "lines": ["one", "three"]}
    assert list(differences(old, new, "case")) == [
        "case: gone: is no longer there; was 1",
        'case: lines: - "two"',
        'case: lines: + "three"',
        'case: nova: hosts: a: is no longer there; was "x"',
        'case: nova: hosts: b: is new: "x"',
    ]
    assert not list(differences(new, json.loads(text_of(new)), "case"))


def test_the_last_digits_of_numbers_do_not_count() -> None:
    assert plain([0.1 + 0.2, 1e-12, 3.0, True, {"nova_plan": 2}]) == [0.3, 0, 3, True, {}]
    assert plain(1.23456) != plain(1.23457)
