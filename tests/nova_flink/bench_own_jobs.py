"""What the plug-in costs a job: ``python tests/nova_flink/bench_own_jobs.py [READINGS [TURNS]]``.

One job is submitted in turn with the plug-in, and with every operator placed by its author. Both
run on the same nodes of one cluster. It prints how long `flink run` took, tuples/s, and CPU time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median

from own_jobs_material import OwnClient, Service, cluster_of_others, compiled_jobs

from nova_flink import names
from nova_flink.rest import Rest

NODES = """\
nova: 1
name: field
nodes:
  - {id: hill, capacity: 1, position: [-60, 60]}
  - {id: shore, capacity: 1, position: [-55, 20]}
  - {id: barn, capacity: 1000, position: [-30, 40]}
  - {id: mill, capacity: 1, position: [-28, 30]}
  - {id: hub, capacity: 1, position: [0, 0]}
"""
MAPPING = """\
sources: {pressure: {node: hill, rate: 100}, humidity: {node: shore, rate: 100}}
sinks: {"*": hub}
"""
WHERE = {"pressure": "hill", "humidity": "shore", "join": "barn", "results": "hub"}
# Turns in which Java compiles what it runs often.
WARMING = 3
# Windows of both streams are kept there.
HEAP = "-Xmx600m"
JOB = re.compile(r"JobID ([0-9a-f]{32})")


def main(readings: int, turns: int) -> None:
    """Print a line for each job, and what all but those of the first turns come to."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        cluster_of_others(Path(scratch) / "cluster", task_manager_options=(HEAP,)) as cluster,
        Service(Path(scratch) / "service") as service,
    ):
        path = Path(scratch)
        (path / "client").mkdir()
        client = OwnClient(cluster.home, cluster.rest.url, path / "client")
        (path / "nodes.yaml").write_text(NODES)
        (path / "mapping.yaml").write_text(MAPPING)
        jar = compiled_jobs(cluster.home, "Counted", path)
        ways = {
            "by hand": (["-Dexecution.target=remote"], ["by-hand"]),
            "plug-in": (
                [
                    f"-Dnova.service={service.url}",
                    f"-Dnova.nodes={path / 'nodes.yaml'}",
                    f"-Dnova.mapping={path / 'mapping.yaml'}",
                ],
                [],
            ),
        }
        workers = [cluster.processes[name].pid for name in ("hill", "shore", "barn", "hub")]
        figures: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
        for turn in range(WARMING + turns):
            # Neither is always the first.
            for way in (*ways, *ways)[turn % 2 :][: len(ways)]:
                settings, more = ways[way]
                begun = time.perf_counter()
                said = subprocess.run(
                    [
                        *(str(cluster.home.flink / "bin" / "flink"), "run", "-d", *settings),
                        *("-c", "Counted", str(jar), str(readings), *more),
                    ],
                    env=client.environment,
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                seconds = time.perf_counter() - begun
                found = JOB.search(said)
                assert found, said
                used = _cpu_s(workers)
                ran = _run(cluster.rest, found[1])
                used = _cpu_s(workers) - used
                print(
                    f"{way}: submitted in {seconds:.2f} s, {2 * readings / ran:,.0f} tuples/s, "
                    f"{1e6 * used / (2 * readings):.2f} us of CPU time each",
                    flush=True,
                )
                if turn >= WARMING:
                    figures[way].append((seconds, ran, used))
        (hand, hand_s, hand_cpu), (own, own_s, own_cpu) = map(_middle, figures.values())
        print(f"submission: by hand {hand:.2f} s, plug-in {own:.2f} s: {own - hand:+.2f} s")
        print(f"tuples/s: with the plug-in {hand_s / own_s:.3f} times those by hand")
        print(f"CPU time of a tuple: {own_cpu / hand_cpu:.3f} times")


def _middle(figures: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Median submission, s; mean running and CPU time of a job, s."""
    took, ran, used = zip(*figures, strict=True)
    return median(took), mean(ran), mean(used)


def _cpu_s(pids: list[int]) -> float:
    """CPU time of processes so far."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in stats) / os.sysconf("SC_CLK_TCK")


def _run(rest: Rest, job: str) -> float:
    """Seconds that a job's operators took, which have to be where they belong."""
    state = rest.wait_ended(job, timeout_s=600)
    assert state == "FINISHED", rest.exceptions(job)
    vertices = rest.job(job)["vertices"]
    for word, node in WHERE.items():
        (vertex,) = (one for one in vertices if word in one["name"].lower())
        (subtask,) = rest.subtasks(job, vertex["id"])
        found = names.node_of_task_manager(subtask["taskmanager-id"])
        assert found == node, f"{vertex['name']} is at {found}"
    end = max(vertex["end-time"] for vertex in vertices)
    return float(end - min(vertex["start-time"] for vertex in vertices)) / 1000


if __name__ == "__main__":
    asked = [int(one) for one in sys.argv[1:]]
    main(*asked, *(2_000_000, 7)[len(asked) :])
