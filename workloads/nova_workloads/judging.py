"""Readings of files, judged: which task reads which file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nova_workloads.archive import ArchiveFile, is_local, is_web

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nova_workloads.cleaning import Cleaning

# Text a task cleans: small enough for many tasks, large enough for few files of results.
LEAST_TASK_BYTES = 8 * 2**20
MOST_TASK_BYTES = 48 * 2**20
TASK_ADDRESSES = 200


def judged(spark: SparkSession, files: Sequence[ArchiveFile], cleaning: Cleaning) -> DataFrame:
    """The readings of files, as `nova_workloads.cleaning_worker` judges them."""
    from functools import reduce

    import pyarrow as pa

    from nova_workloads.cleaning_worker import DDL, cleaner

    # Workers open what they can reach by themselves; of many small files, Hadoop's way of
    # opening them would take most of the time.
    near = [file for file in files if is_local(file.path) or is_web(file.path)]
    far = [file for file in files if not (is_local(file.path) or is_web(file.path))]
    parts = []
    if near:
        task = _tasks(near, spark.sparkContext.defaultParallelism)
        paths = pa.table({"path": [file.path for file in near], "task": pa.array(task, pa.int32())})
        parts.append(
            spark.createDataFrame(paths).repartitionById(max(task) + 1, "task").select("path")
        )
    if far:
        source = spark.read.format("binaryFile")
        parts.append(source.load([file.path for file in far]).select("path", "content"))
    clean = cleaner(cleaning)
    made = [part.mapInArrow(clean, DDL) for part in parts]
    return reduce(lambda one, other: one.union(other), made)


def _tasks(files: Sequence[ArchiveFile], parallelism: int) -> list[int]:
    """A task for each file, in order, so that tasks have about as much to read."""
    share = sum(file.bytes for file in files) // (4 * parallelism)
    most = min(max(share, LEAST_TASK_BYTES), MOST_TASK_BYTES)
    tasks: list[int] = []
    task = size = count = 0
    for file in files:
        full = size + file.bytes > most or (file.bytes == 0 and count >= TASK_ADDRESSES)
        if count and full:
            task, size, count = task + 1, 0, 0
        tasks.append(task)
        size, count = size + file.bytes, count + 1
    return tasks
