"""Answers and what a restart finds, at one fill level of a small file system after the other.

``python full_disk.py MOUNT_POINT``, in a mount namespace of its own; prints figures as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

warnings.simplefilter("ignore")

PAGE = 4096


def mount(place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=True)


def fill(place: Path, left: int) -> None:
    """Use up the file system but for so many pages."""
    with (place / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(PAGE)) == PAGE:
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() // PAGE - left) * PAGE)


def events_in(directory: Path) -> list[float]:
    """Rates of all events that journals have."""
    logs = directory.glob("placements/field/events-*.jsonl")
    entries = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [entry["event"]["rate"] for entry in entries if "event" in entry]


def try_level(place: Path, pages: int, before: int, sync: bool) -> dict[str, int]:
    from serving import begin, rate

    from nova_core.service.application import application
    from nova_core.service.settings import Settings
    from nova_core.service.store import Store

    def client() -> TestClient:
        app = application(Store(Settings(place / "data", sync=sync, limit=2**20)))
        return TestClient(app, base_url="http://127.0.0.1")

    followed: list[float] = []
    texts: list[Any] = []
    refused = 0

    def send(api: TestClient) -> bool:
        nonlocal refused
        # Of all lengths, so that lines end at all places of a page.
        value = 20 + (len(followed) + refused + 1) / 7
        answer = api.post("/placements/field/events", json=rate(value))
        if answer.status_code == 200:
            followed.append(value)
            texts.append(answer.json())
            return True
        assert answer.status_code == 503, answer.text
        assert "No space left on device" in answer.json()["error"], answer.text
        refused += 1
        return False

    (place / "data").mkdir()
    with client() as api:
        begin(api)
        for _ in range(before):
            assert send(api)
        fill(place, pages)
        while refused < 3:
            send(api)
        # As memory has it: what was refused has not happened.
        assert api.get("/placements/field").json()["version"] == len(followed)
        assert api.get("/health").json()["failing"] == ["field"]
        (place / "filler").unlink()
        for _ in range(3):
            assert send(api), "nothing is taken although there is room again"
        assert api.get("/health").json()["failing"] == []
    assert events_in(place / "data") == followed
    with client() as api:
        assert api.get("/health").json()["status"] == "ok"
        assert api.get("/placements/field/deltas").json()["deltas"] == texts
        problem = api.get("/placements/field/problem").json()
        assert problem["sources"][0]["rate"] == followed[-1]
        assert send(api)
    return {"followed": len(followed), "refused": refused}


def main() -> None:
    place = Path(sys.argv[1])
    levels = [(pages, before) for pages in range(4) for before in range(8)]
    total = {"levels": 0, "followed": 0, "refused": 0}
    for number, (pages, before) in enumerate(levels):
        mount(place)
        result = try_level(place, pages, before, sync=number % 2 == 1)
        total["levels"] += 1
        for name, count in result.items():
            total[name] += count
        subprocess.run(["umount", "--lazy", str(place)], check=True)
    print(json.dumps(total), flush=True)


if __name__ == "__main__":
    main()
    # Stores that were not closed keep nothing that matters.
    os._exit(0)
