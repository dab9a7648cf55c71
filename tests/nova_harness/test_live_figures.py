"""Figures while an experiment runs, of whatever its sink writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nova_engines.results import FIELDS, PAIR, Fields, dtype, row_fields
from nova_harness.experiment.live import LiveFigures


class Here:
    """A host that is this machine."""

    def run(self, command: str) -> Any:
        return subprocess.run(command, shell=True, capture_output=True, text=True, check=True)

    def stream(self, command: str, _: None, write: Any, __: float) -> None:
        write(subprocess.run(command, shell=True, capture_output=True, check=True).stdout)


@pytest.mark.parametrize(
    ("fields", "emitted"),
    [(PAIR, "right_emit_us"), (row_fields(["a", "b"], ["int", "float"]), "newest_us")],
)
def test_figures_of_pairs_and_of_rows(tmp_path: Path, fields: Fields, emitted: str) -> None:
    file = tmp_path / "results"

    class Hosts(dict[str, Here]):
        inventory = SimpleNamespace(virtual=False)

    deployment: Any = SimpleNamespace(
        hosts=Hosts(sink=Here()), sink="sink", result_file=lambda name: str(tmp_path / name)
    )
    figures = LiveFigures(deployment)
    file.with_name(file.name + FIELDS).write_text(json.dumps(fields))
    records = np.zeros(1500, dtype(fields))
    records[emitted], records["arrive_us"] = 1_000_000, 1_250_000
    # The last one is not there in full.
    file.write_bytes(records.tobytes()[:-1])
    figures._looked -= 10
    read = figures.read()
    assert read is not None and read.latency_ms == 250
    assert read.results_per_s == pytest.approx(149.9, abs=0.5)
