"""`python -m tests.golden`: compare what Nova answers with what is recorded, or record it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from .comparison import differences, text_of
from .recording import EXPECTED, cases, recorded

SHOWN = 40  # lines per case


def main() -> int:
    """Compare or write; exit code 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help="only cases that begin with this")
    parser.add_argument("--write", action="store_true", help="record the answers anew")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder for the documents")
    asked = parser.parse_args()
    os.environ.setdefault("NOVA_KERNELS", "compile")
    os.environ.pop("COLUMNS", None)
    known = cases()
    chosen = [name for name in known if name.startswith(tuple(asked.names or [""]))]
    if asked.keep and asked.keep.exists():
        parser.error(f"--keep {asked.keep}: is there already; give a folder to be made")
    if not chosen:
        parser.error(f"no case begins with {' or '.join(asked.names)}")
    kept = asked.keep or Path(tempfile.mkdtemp(prefix="nova-golden-"))
    changed = []
    for name in chosen:
        folder = kept.resolve() / name
        folder.mkdir(parents=True)
        with contextlib.chdir(folder):
            answer = json.loads(text_of(known[name]()))
        lines = list(differences(recorded(name), answer, f"{name}.json"))
        if asked.write:
            path = EXPECTED / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(answer) + "\n")
        if lines:
            changed.append(name)
            print(*lines[:SHOWN], sep="\n")
            if len(lines) > SHOWN:
                print(f"{name}.json: {len(lines) - SHOWN} more differences")
    for path in list(EXPECTED.rglob("*.json")):
        name = str(path.relative_to(EXPECTED).with_suffix(""))
        if name not in known:
            changed.append(name)
            print(f"{name}.json: no case has this name")
            if asked.write:
                path.unlink()
    print(f"{len(changed)} of {len(chosen)} goldens differ")
    if changed:
        print(
            f"The new documents are in {kept}. For the old ones, run "
            f"`python -m tests.golden --keep OLD {changed[0]}` on the commit that wrote the goldens"
            f" (`git worktree add`), then `diff -r OLD {kept}`."
        )
    elif not asked.keep:
        shutil.rmtree(kept)
    return int(bool(changed) and not asked.write)


if __name__ == "__main__":
    sys.exit(main())
