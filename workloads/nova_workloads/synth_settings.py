"""What a synthetic archive is like: sensors, days, and how much of each fault."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import date, timedelta

from nova_core.errors import NovaError

DAY = 86_400  # seconds
# The columns after `timestamp` of each type of sensor in the public archive.
TYPES = {
    "bmp280": ("pressure", "altitude", "pressure_sealevel", "temperature"),
    "dht22": ("temperature", "humidity"),
    "bme280": ("pressure", "altitude", "pressure_sealevel", "temperature", "humidity"),
}
BYTES_PER_ROW = {"bmp280": 75, "dht22": 58, "bme280": 80}


@dataclass(frozen=True)
class Faults:
    """How much of each fault an archive gets, as shares between 0 and 1.

    Attributes:
        missing: of readings, with one measured value left empty.
        not_a_number: of readings, with one value written ``nan`` or ``unavailable``.
        impossible: of readings, with one value that no weather has.
        duplicates: of readings, written twice.
        clock_jumps: of files, with a run of timestamps decades away.
        moved: of sensors, that stand elsewhere from some reading on.
        absent: of files, that are not there.
        bad_files: of files, that are not what their name claims: truncated, an HTML page, another
            sensor's columns, random bytes, empty, or with the wrong compression.
    """

    missing: float = 0.01
    not_a_number: float = 0.01
    impossible: float = 0.005
    duplicates: float = 0.01
    clock_jumps: float = 0.01
    moved: float = 0.01
    absent: float = 0.02
    bad_files: float = 0.005

    @classmethod
    def none(cls) -> Faults:
        """A clean archive."""
        return cls(**{f.name: 0.0 for f in fields(cls)})


@dataclass(frozen=True)
class Settings:
    """Parameters of an archive.

    Attributes:
        sensors: how many.
        days: how many, from ``start``.
        start: first day.
        types: sensor types, dealt to the sensors in turn.
        interval: seconds between a sensor's readings, about 145 in the public archive; readings
            jitter by less than half of it.
        regions: towns the sensors stand in.
        compress: write ``.csv.gz``.
        mixed: write all sensors of a day into few large files, with the columns of a BME280; there
            are no bad files then.
        seed: one seed gives one archive, byte for byte.
        faults: shares of faults.
    """

    sensors: int
    days: int = 1
    start: date = date(2025, 1, 1)
    types: tuple[str, ...] = tuple(TYPES)
    interval: int = 145
    regions: int = 4
    compress: bool = False
    mixed: bool = False
    seed: int = 0
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        for name, least in (("sensors", 1), ("days", 1), ("interval", 2), ("regions", 1)):
            if getattr(self, name) < least:
                raise NovaError(f"synth: {name} {getattr(self, name)}: expected {least} or more")
        if self.interval > DAY // 2:
            raise NovaError(f"synth: interval {self.interval} s: expected half a day at most")
        if self.seed < 0:
            raise NovaError(f"synth: seed {self.seed}: expected 0 or more")
        unknown = [name for name in self.types if name not in TYPES]
        if unknown or not self.types:
            wrong = f"unknown sensor type {unknown[0]!r}" if unknown else "no sensor type"
            raise NovaError(f"synth: {wrong}; there are {', '.join(TYPES)}")
        try:
            self.start + timedelta(days=self.days)
        except OverflowError as error:
            raise NovaError(f"synth: days {self.days}: beyond the calendar") from error
        shares = asdict(self.faults)
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise NovaError(f"synth: {name} {share:g}: expected a share between 0 and 1")
        if self.mixed and self.faults.bad_files:
            raise NovaError("synth: bad_files: mixed archives have none; expected 0")
        of_readings = sum(shares[name] for name in ("missing", "not_a_number", "impossible"))
        if of_readings + self.faults.duplicates > 1:
            raise NovaError(
                "synth: missing, not_a_number, impossible and duplicates: a reading has one "
                f"fault at most, so they sum to 1 at most, not to {of_readings:g}"
            )

    @property
    def suffix(self) -> str:
        """Suffix of the files' names."""
        return ".csv.gz" if self.compress else ".csv"

    @property
    def readings_per_file(self) -> int:
        """Readings of a sensor in a day, before duplicates."""
        return DAY // self.interval

    @property
    def expected_bytes(self) -> int:
        """About how large the archive becomes, uncompressed."""
        row = sum(BYTES_PER_ROW[name] for name in self.types) / len(self.types)
        files = self.sensors * self.days * (1 - self.faults.absent)
        return int(files * self.readings_per_file * row * (1 + self.faults.duplicates))
