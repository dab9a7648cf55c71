"""`python -m tests.house.constraints`: writes the versions in this environment to constraints.txt.

Of packages that Nova needs, with any of its extras, and nothing else that is installed here.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.fuzz.bare import DISTRIBUTION, RESEARCH, closure

OURS = {DISTRIBUTION, RESEARCH}
FILE = Path(__file__).resolve().parents[2] / "constraints.txt"
NOTE = """\
# What was tested, exactly. ./nova installs these versions; elsewhere, `pip install -c` of this file
# takes them. Made by `.venv/bin/python -m tests.house.constraints`.
"""


def needed() -> set[str]:
    """Names of all packages that Nova, its extras and its development need on this machine."""
    return (closure(f"{DISTRIBUTION}[all]") | closure(f"{DISTRIBUTION}[dev]")) - OURS


def main() -> int:
    """Write the file; exit code 1 when something is not installed here."""
    pins, missing = [], []
    for name in sorted(needed()):
        try:
            pins.append(f"{name}=={version(name)}\n")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 1
    FILE.write_text(NOTE + "".join(pins))
    return 0


if __name__ == "__main__":
    sys.exit(main())
