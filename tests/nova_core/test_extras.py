"""Which extra brings a module, and how a missing one is named."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError

import pytest

from nova_core import extras
from nova_core.errors import NovaError


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("annoy", "nova-placement[annoy]"),
        ("cryptography.hazmat", "nova-placement[testbed]"),
        ("duckdb", "nova-placement[queries]"),
        ("jax.numpy", "nova-research[learn]"),
        ("jinja2", "nova-placement[experiment]"),
        ("kafka.errors", "nova-placement[kafka]"),
        ("pandas", "nova-placement[spark]"),
        ("paramiko", "nova-placement[testbed]"),
        ("prometheus_client", "nova-placement[serve]"),
        ("py4j.protocol", "nova-placement[spark]"),
        ("pyspark.sql", "nova-placement[spark]"),
        ("uvloop", "nova-placement[serve]"),
        ("numpy", None),
        ("no_such_module", None),
    ],
)
def test_the_smallest_extra_is_found(module: str, extra: str | None) -> None:
    assert extras.extra_of(module) == extra


def test_a_missing_module_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka", None)
    with pytest.raises(NovaError) as caught, extras.needed("topics"):
        import kafka.errors  # noqa: F401
    text = "topics: needs the module kafka; pip install 'nova-placement[kafka]'"
    assert str(caught.value) == text


def test_other_failures_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError), extras.needed("it"):
        import no_such_module  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name"), extras.needed("it"):
        from json import nothing  # noqa: F401

    def unknown(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", unknown)
    assert extras.extra_of("paramiko") is None
