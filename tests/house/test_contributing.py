"""CONTRIBUTING.md: the files and folders that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
# Folders that a path may leave out where a longer one before it in the line names them.
SHORT = re.compile(r"[\w./-]+\.(?:py|md|txt)|[\w-]+/(?:[\w.-]+/?)*")


def missing() -> list[str]:
    """Paths in backticks, and targets of links, that lead nowhere."""
    lost = []
    for line in PAGE.read_text().splitlines():
        names = re.findall(r"`([^`\s]+)`", line)
        names += [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s:]+)\)", line)]
        parents = [ROOT]
        for name in names:
            if not SHORT.fullmatch(name) or name.startswith(("../", "fuzz-failures")):
                continue
            here = next((at / name for at in parents if (at / name).exists()), None)
            if here is None:
                lost.append(name)
            else:
                parents += here.parents[: len(here.relative_to(ROOT).parents)]
    return lost


def test_paths_exist() -> None:
    assert missing() == []
