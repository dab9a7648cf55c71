"""What one run of a module's hosts has calibrated, for those that come after it."""

from __future__ import annotations

import shutil
from pathlib import Path


def keep_calibration(base: Path, run: Path, engine: str = "flink") -> None:
    """Keep what a run has calibrated for later tests."""
    kept = base / f"calibrated-{engine}"
    kept.mkdir(exist_ok=True)
    for name in ("experiment.yaml", "calibration.json"):
        shutil.copy(run / name, kept)


def begun(base: Path, tmp_path: Path, engine: str = "flink") -> Path:
    """A folder to run in, calibrated where an earlier test has been."""
    if (kept := base / f"calibrated-{engine}").is_dir():
        shutil.copytree(kept, tmp_path / "run")
    return tmp_path / "run"
