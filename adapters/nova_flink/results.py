"""The result records a sink writes, one per result tuple, and reading them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# As ResultSink.java writes them: little endian, 80 bytes.
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


@dataclass(frozen=True, eq=False)
class ResultRecords:
    """What a result file holds.

    Attributes:
        records: (k,) structured array with the fields `FIELDS`.
        truncated_bytes: of a record at the end of the file that was not written in full.
    """

    records: NDArray[np.void]
    truncated_bytes: int

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, field: str) -> NDArray[Any]:
        return self.records[field]


def read(path: Path) -> ResultRecords:
    """Read a result file, which may still be written to.

    Raises:
        NovaError: where there is no such file.
    """
    import numpy as np

    from nova_core.errors import NovaError

    try:
        data = path.read_bytes()
    except OSError as error:
        raise NovaError(f"{path}: {error.strerror}; a sink makes it when its job starts") from error
    whole = len(data) // RECORD_BYTES
    records = np.frombuffer(data, np.dtype(list(FIELDS)), count=whole)
    return ResultRecords(records, len(data) - whole * RECORD_BYTES)


__all__ = ["FIELDS", "RECORD_BYTES", "ResultRecords", "read"]
