"""The result records a sink writes, one per result tuple, and reading them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# As ResultFile.java of nova_engines writes them: little endian, 80 bytes.
FIELDS = (
    ("instance", "<i4"),  # index into the dataflow's joins
    ("left_source", "<i4"),  # index into the workload's sources
    ("right_source", "<i4"),
    # From when the earlier tuple was emitted to when the first of both was taken in by the engine.
    ("waited_us", "<i4"),  # 0 where the engine's own sources emit
    ("window_ms", "<i8"),  # begin of the window, ms since the epoch
    ("left_sequence", "<i8"),
    ("right_sequence", "<i8"),
    ("left_emit_us", "<i8"),  # when the source emitted the tuple, us since the epoch
    ("right_emit_us", "<i8"),
    ("arrive_us", "<i8"),  # when the result reached the sink
    ("left_value", "<f8"),
    ("right_value", "<f8"),
)
RECORD_BYTES = 80
# Files beside that of the results, see ResultFile.java.
JOB, END, FAILED, COMPLETE = ".job", ".end", ".failed", ".complete"
BESIDE = (JOB, END, FAILED, COMPLETE)


@dataclass(frozen=True, eq=False)
class ResultRecords:
    """What a result file holds.

    Attributes:
        records: (k,) structured array with the fields `FIELDS`.
        truncated_bytes: of a record at the end of the file that was not written in full.
        starts: how often the sink was started for its job. An engine that restarts it may deliver
            results twice: Flink does, without checkpoints.
        announced: number of results that the sink reported at its end; None before.
        failure: why some could not be written; None where all could.
        dead_letters: number of inputs that were no tuples of their source, where that is known.
    """

    records: NDArray[np.void]
    truncated_bytes: int
    starts: int = 1
    announced: int | None = None
    failure: str | None = None
    dead_letters: int = 0

    def __len__(self) -> int:
        return len(self.records)

    def loss(self, *, finished: bool) -> str | None:
        """Which of the sink's results are missing, in a line; None where none are.

        Args:
            finished: whether the job has come to its end.
        """
        if self.failure is not None:
            return f"the sink could not write its results: {self.failure or 'is the disk full?'}"
        if finished and self.announced is None:
            return "the sink has not said that its results are complete"
        if self.announced is not None and self.announced != len(self):
            return f"the sink wrote {self.announced:,} results, {len(self):,} are there"
        return None

    def __getitem__(self, field: str) -> NDArray[Any]:
        return self.records[field]


def read(path: Path) -> ResultRecords:
    """Read a result file, which may still be written to, and the files beside it.

    Raises:
        NovaError: where there is no such file.
    """
    import numpy as np

    from nova_core.errors import NovaError

    # Before the data: a sink may end in between.
    job, end, failure = (_beside(path, suffix) for suffix in (JOB, END, FAILED))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NovaError(f"{path}: {error.strerror}; a sink makes it when its job starts") from error
    whole = len(data) // RECORD_BYTES
    records = np.frombuffer(data, np.dtype(list(FIELDS)), count=whole)
    announced = end.strip() if end is not None else ""
    return ResultRecords(
        records,
        len(data) - whole * RECORD_BYTES,
        starts=max(1, len((job or "").splitlines())),
        announced=int(announced) if announced.isdigit() else None,
        failure=None if failure is None else failure.strip(),
    )


def _beside(path: Path, suffix: str) -> str | None:
    file = path.with_name(path.name + suffix)
    return file.read_text("utf-8", "replace") if file.is_file() else None
