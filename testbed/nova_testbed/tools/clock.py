"""Answers each line it reads with the time, ns since the epoch."""

from __future__ import annotations

import sys
import time


def main() -> None:
    """Answer until stdin ends."""
    for _ in sys.stdin:
        sys.stdout.write(f"{time.time_ns()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
