"""What a disk holds at each moment at which a journal removes or renames something.

``python power_cut.py DIRECTORY``, in a mount namespace of its own. The journal is on an ext4 file
system in a file. That file has only what the file system has written to its disk: a copy of it is
the disk after a power cut. Nothing is written by and by while this runs (``commit=600``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from nova_core.placement.live import ChangeRate, Journal, LivePlacement
from nova_core.strategies import place
from nova_workloads.topology import generate

REMOVING = ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    work, sync = Path(sys.argv[1]), sys.argv[2] == "sync"
    image, mounted = work / "disk", work / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(16 * 2**20)
    run("mkfs.ext4", "-q", str(image))
    run("mount", "-o", "loop,commit=600", str(image), str(mounted))
    # Each with the version that must be on it.
    cuts: list[tuple[Path, int]] = []
    least = 0

    def cut() -> None:
        copy = work / f"cut-{len(cuts)}"
        cuts.append((copy, least))
        shutil.copyfile(image, copy)

    watching = False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in REMOVING:
            cut()

    sys.addaudithook(watch)
    problem = generate(40, seed=4)
    journal = Journal.create(
        mounted / "j", LivePlacement(problem, place(problem, "nova")), sync=sync
    )
    watching = True
    cut()
    for number in range(1, 10):
        journal.apply(ChangeRate(source="s1", rate=20.0 + number / 10))
        if sync:
            least = number
        cut()
        if number % 3 == 0:
            journal.checkpoint()
            least = number
            cut()
    watching = False
    journal.close()
    run("umount", str(mounted))
    for copy, version in cuts:
        run("mount", "-o", "loop", str(copy), str(mounted))
        with Journal.resume(mounted / "j") as after:
            assert after.live.version >= version, (copy, after.live.version, version)
        run("umount", str(mounted))
    print(json.dumps({"cuts": len(cuts)}))


if __name__ == "__main__":
    main()
