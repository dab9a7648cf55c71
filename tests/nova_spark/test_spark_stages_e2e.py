"""Queries that know nothing of Nova run where a file of rules places their stages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from needs import skip_or_fail

from nova_spark.engine import SPARK
from nova_spark.extension import EXTENSIONS, build
from nova_spark.home import spark_home
from nova_spark.local_cluster import LocalCluster

pytestmark = pytest.mark.e2e
NODES = [f"n_{i}.x" for i in range(3)]
ENDED_S = 180
ROWS = 400
ITEMS = 40

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")


def on_page(title: str) -> str:
    """An example of the docs."""
    text = PAGE.partition(f"```text {title}\n")[2].partition("```")[0]
    assert text, title
    return text


# The docs' hosts by number.
HOSTS = {"barn": "{0}", "hill": "{1}", "shore": "{2}"}
RULES = on_page("stages.yaml").replace("{", "{{").replace("}", "}}")
for name, number in HOSTS.items():
    RULES = RULES.replace(name, number)
BATCH = on_page("job.py")
STREAMING = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
folder, results = sys.argv[1:]
orders = spark.readStream.csv(folder + "/orders", schema="item INT, amount INT")
parts = spark.readStream.csv(folder + "/parts", schema="item INT, weight INT")
joined = orders.join(parts, "item").where("amount < weight")
writer = joined.writeStream.option("checkpointLocation", results + "-state")
writer.trigger(availableNow=True).format("csv").start(results).awaitTermination()
"""


@dataclass
class Running:
    """A cluster whose Workers offer nothing of Nova's, and the readings of both streams."""

    cluster: LocalCluster
    jar: Path
    folder: Path
    rows: dict[str, list[tuple[int, int]]]

    @property
    def hosts(self) -> list[str]:
        return [self.cluster.configuration.addresses[name] for name in NODES]

    def submit(self, name: str, program: str, rules: str) -> subprocess.CompletedProcess[str]:
        """What `spark-submit` says of a program; its events are in ``NAME-events``."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        (place / "job.py").write_text(program)
        (place / "rules.yaml").write_text(rules.format(*self.hosts))
        (place / "events").mkdir()
        settings = {
            "spark.sql.extensions": EXTENSIONS,
            "spark.nova.stages": str(place / "rules.yaml"),
            "spark.nova.wait": "10s",
            "spark.locality.wait": "1h",
            "spark.driver.host": self.hosts[0],
            "spark.driver.bindAddress": self.hosts[0],
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": (place / "events").as_uri(),
        }
        command = [f"{spark_home()}/bin/spark-submit", "--jars", str(self.jar)]
        command += ["--master", self.cluster.configuration.master_url]
        command += [word for one in settings.items() for word in ("--conf", "=".join(one))]
        command += [str(place / "job.py"), str(self.folder), str(place / "results")]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=ENDED_S, check=False
        )

    def results(self, name: str) -> list[tuple[int, ...]]:
        files = sorted((self.folder / name / "results").glob("part-*.csv"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return sorted(tuple(map(int, line.split(","))) for line in lines)

    def places(self, name: str) -> dict[str, set[str]]:
        """The hosts of every stage's tasks, by what the stage is."""
        (file,) = (self.folder / name / "events").iterdir()
        titles: dict[int, str] = {}
        found: dict[str, set[str]] = {}
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageSubmitted":
                info = event["Stage Info"]
                names = [rdd["Name"] for rdd in info["RDD Info"] if ": " in rdd["Name"]]
                titles[info["Stage ID"]] = next((n for n in names if n.startswith("nova: ")), "")
            elif event["Event"] == "SparkListenerTaskEnd":
                assert event["Task End Reason"]["Reason"] == "Success", event
                title = titles[event["Stage ID"]]
                found.setdefault(title, set()).add(event["Task Info"]["Host"])
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if not SPARK.installed() and not os.environ.get("CI"):
        skip_or_fail("PySpark and Java are missing: pip install 'nova-placement[spark]'")
    folder = tmp_path_factory.mktemp("jobs")
    rows = {}
    for stream, factor in (("orders", 7), ("parts", 11)):
        rows[stream] = [(n % ITEMS, n * factor % 100) for n in range(ROWS)]
        (folder / stream).mkdir()
        for part in range(2):
            lines = [f"{item},{value}\n" for item, value in rows[stream][part::2]]
            (folder / stream / f"{part}.csv").write_text("".join(lines))
    (jar,) = build()
    with LocalCluster(NODES, folder / "cluster", python=sys.executable, slots=2) as cluster:
        yield Running(cluster, jar, folder, rows)


def joined(running: Running) -> list[tuple[int, int, int]]:
    return sorted(
        (item, amount, weight)
        for item, amount in running.rows["orders"]
        for other, weight in running.rows["parts"]
        if item == other and amount < weight
    )


def counted(running: Running) -> list[tuple[int, int]]:
    return sorted(Counter(amount % 10 for _, amount, _ in joined(running)).items())


def test_a_batch_query(running: Running) -> None:
    done = running.submit("batch", BATCH, RULES)
    assert done.returncode == 0, done.stderr
    assert running.results("batch") == counted(running)
    coordinator, first, second = running.hosts
    folder = f"file:{running.folder}"
    assert running.places("batch") == {
        f"nova: scan of {folder}/orders": {first},
        f"nova: scan of {folder}/parts": {second},
        f"nova: join of {folder}/orders and {folder}/parts": {coordinator, first},
        f"nova: aggregate of {folder}/orders and {folder}/parts": {second},
    }


def test_a_streaming_query(running: Running) -> None:
    done = running.submit("streaming", STREAMING, RULES)
    assert done.returncode == 0, done.stderr
    assert running.results("streaming") == joined(running)
    coordinator, first, second = running.hosts
    places = running.places("streaming")
    assert all(title.startswith("nova: ") for title in places), places
    for title, hosts in places.items():
        both = "orders" in title and "parts" in title
        assert hosts == (
            {coordinator, first} if both else {first} if "orders" in title else {second}
        ), places


WRONG = {
    "stage 'scan of file:[^ ]*/parts': no rule of [^ ]*.yaml places it": (
        "stages:\n  - {{reads: orders, hosts: {1}}}\n  - {{reads: [orders, parts], hosts: {0}}}\n"
    ),
    "no executor on mill after 1.0 s": 'stages:\n  - {{reads: "*", hosts: [{1}, mill]}}\n',
    "stages: 1: off: expected reads, kind, hosts": "stages:\n  - {{reads: orders, off: {0}}}\n",
    "kind: sum: expected scan, join": "stages:\n  - {{reads: orders, hosts: {0}, kind: sum}}\n",
    "reads: expected a name, or a list of names": "stages:\n  - {{reads: 5, hosts: {0}}}\n",
    "expected a list `stages`": "places: []\n",
    "[0-9].yaml: while parsing": "stages: [\n",
}
REFUSED = (
    BATCH.replace("joined.groupBy", "counts = joined.groupBy").partition(".write")[0]
    + """
import glob

spark.conf.set("spark.nova.wait", "1s")
for file in sorted(glob.glob(results + "-rules/*.yaml")):
    spark.conf.set("spark.nova.stages", file)
    try:
        print(file, "was taken:", counts.collect())
    except Exception as error:
        print(file, str(error).replace(chr(10), " "))
spark.conf.set("spark.nova.on-error", "unplaced")
print("unplaced:", sorted(map(tuple, counts.collect())))
"""
)


def test_what_cannot_be_placed_ends_with_a_line(running: Running) -> None:
    rules = running.folder / "refused" / "results-rules"
    rules.mkdir(parents=True)
    for number, text in enumerate(WRONG.values()):
        (rules / f"{number}.yaml").write_text(text.format(*running.hosts))
    done = running.submit("refused", REFUSED, RULES)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if ".yaml" in line or "unplaced" in line]
    for number, (said, line) in enumerate(zip(WRONG, told, strict=False)):
        assert re.search(f"/{number}.yaml .*Nova: .*{said}", line), line
    assert told[-1] == f"unplaced: {counted(running)}"
