from __future__ import annotations

import os

import pytest

from nova_core.environment import variables


def test_what_was_there_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_TEST_OLD", "old")
    monkeypatch.delenv("NOVA_TEST_NEW", raising=False)
    with (
        pytest.raises(ZeroDivisionError),
        variables(NOVA_TEST_OLD="other", NOVA_TEST_NEW="new"),
    ):
        assert (os.environ["NOVA_TEST_OLD"], os.environ["NOVA_TEST_NEW"]) == ("other", "new")
        raise ZeroDivisionError
    assert os.environ["NOVA_TEST_OLD"] == "old"
    assert "NOVA_TEST_NEW" not in os.environ
