"""Results that a sink has written: a file for every batch that had any."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines import results

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def read(directory: Path) -> NDArray[np.void]:
    """All results of a sink so far, in the order of the batches.

    Args:
        directory: of the sink: ``0`` within the job's for the first.

    Returns:
        (k,) structured array with the fields `nova_engines.results.PAIR`.

    Raises:
        NovaError: where there is no such directory, or a file in it that no sink has written.
    """
    import numpy as np

    if not directory.is_dir():
        raise NovaError(f"{directory}: is no directory; a sink makes it with its first results")
    parts: list[Any] = [np.empty(0, results.dtype(results.PAIR))]
    for path in sorted(directory.iterdir()):
        if path.name.isdigit():
            batch = results.read(path, results.PAIR)
            if batch.truncated_bytes:
                raise NovaError(f"{path}: ends within a record")
            parts.append(batch.records)
    return np.concatenate(parts)
