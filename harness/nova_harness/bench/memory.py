"""Memory of this process, as Linux reports it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

STATUS = Path("/proc/self/status")
RESET_PEAK = Path("/proc/self/clear_refs")


def memory_in_use() -> int:
    """Resident bytes, after freed memory has been handed back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    return _status("VmRSS")


def reset_peak() -> bool:
    """Forget the greatest memory use so far; False where the system cannot."""
    try:
        RESET_PEAK.write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> int:
    """Most resident bytes since the last `reset_peak`; 0 where the system reports none."""
    return _status("VmHWM")


def _status(field: str) -> int:
    """A figure of this process in bytes; 0 where the system reports none."""
    if not STATUS.exists():
        return 0
    for line in STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return 0
