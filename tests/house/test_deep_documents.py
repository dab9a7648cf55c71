"""JSON of others that is nested too deeply is told in one line, wherever it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nova_core.errors import NovaError
from nova_engines import results
from nova_flink.moving import _check_nodes
from nova_flink.pin import pin
from nova_flink.rest import Rest
from nova_testbed.rack.state import StateDirectory
from nova_workloads.download import Manifest

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "fields of results": ("results.fields", lambda path: results.read(path.with_suffix(""))),
    "a plan to pin": ("plan.json", lambda path: pin(None, path)),
    "a plan to move to": ("plan.json", lambda path: _check_nodes(Rest("http://flink"), path)),
    "a rack": ("rack.json", lambda path: StateDirectory(path.parent).read()),
    "a manifest": ("manifest.jsonl", lambda path: Manifest(path.parent)),
}


@pytest.mark.parametrize("what", READERS)
def test_documents_nested_too_deeply(tmp_path: Path, what: str) -> None:
    name, read = READERS[what]
    path = tmp_path / name
    path.write_text(('{"a":' * 100_000 + "\n") * 2)
    path.with_suffix("").touch()
    with pytest.raises(NovaError, match=name) as caught:
        read(path)
    assert "\n" not in str(caught.value)
