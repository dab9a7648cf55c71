"""How an archive is to be prepared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nova_core.errors import NovaError
from nova_workloads.cleaning import Cleaning
from nova_workloads.regions import Grid, Regions

if TYPE_CHECKING:
    from datetime import date

SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class Preparation:
    """What is to be prepared, and how.

    Attributes:
        regions: how positions become regions.
        cleaning: what counts as clean.
        max_distance: km; pairs of sensors further apart do not join; None for no limit.
        window: s that rates are counted over; divides a day.
        on_bad_file: ``skip`` a file that is not what its name claims, or ``fail``.
        first_day: earlier days are left out; None for no limit.
        last_day: later days are left out; None for no limit.
    """

    regions: Regions = field(default_factory=Grid)
    cleaning: Cleaning = field(default_factory=Cleaning)
    max_distance: float | None = None
    window: int = 3600
    on_bad_file: Literal["skip", "fail"] = "skip"
    first_day: date | None = None
    last_day: date | None = None

    def __post_init__(self) -> None:
        if self.window < 1 or SECONDS_PER_DAY % self.window:
            raise NovaError(
                f"rate window of {self.window} s: expected a divisor of a day, such as 60 or 3600"
            )
        for name, value in (
            ("join distance", self.max_distance),
            ("move distance", self.cleaning.move_distance),
        ):
            if value is not None and not value >= 0:
                raise NovaError(f"{name} {value} km: expected 0 or more")
        if not self.cleaning.sequence_period > 0:
            raise NovaError(
                f"sequence period {self.cleaning.sequence_period} ms: expected more than 0"
            )

    def settings(self) -> dict[str, Any]:
        """What all runs on a directory must have in common."""
        return {
            "regions": self.regions.describe(),
            "cleaning": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(self.cleaning).items()
            },
            "window": self.window,
        }
