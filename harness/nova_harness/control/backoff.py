"""Waits that grow while something fails again and again."""

from __future__ import annotations

import math
from dataclasses import dataclass

# A failure so long after the last wait counts as the first one, s.
CALM_S = 3600.0


@dataclass
class Backoff:
    """A wait that doubles with each failure, and is short again after a calm hour.

    Attributes:
        wait_s: after the last failure; 0 before the first one.
        until: when that wait is over, `time.monotonic`.
    """

    wait_s: float = 0.0
    until: float = -math.inf

    def fail(self, now: float, first_s: float) -> None:
        """Count a failure.

        Args:
            now: `time.monotonic`.
            first_s: the wait after a first failure, s.
        """
        calm = now > self.until + CALM_S
        self.wait_s = first_s if calm else 2 * self.wait_s
        self.until = now + self.wait_s
