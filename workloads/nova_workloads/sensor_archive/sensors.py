"""From readings to sensors (rates, spans of activity) and to the join matrix, in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_workloads.sensor_archive.files import SEQUENCE_DAY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEQUENCE_WINDOW = 1  # s; sequence files hold minutes at most
FIXED_BYTES = 24  # of a tuple: sensor, time and value, 8 bytes each; the region's name comes on top
EARTH_RADIUS = 6371.0088  # km, mean


def distance(lat: Column, lon: Column, other_lat: Column, other_lon: Column) -> Column:
    """Great-circle distance of two positions in degrees, km (haversine)."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    down = F.pow(F.sin(F.radians(other_lat - lat) / 2), 2)
    across = F.pow(F.sin(F.radians(other_lon - lon) / 2), 2)
    root = F.sqrt(down + F.cos(F.radians(lat)) * F.cos(F.radians(other_lat)) * across)
    return 2 * EARTH_RADIUS * F.asin(F.least(F.lit(1.0), root))


def activity(readings: DataFrame, window: int) -> DataFrame:
    """How many readings each sensor made in each window of time.

    Args:
        readings: ``day``, ``stream``, ``sensor``, ``timestamp``.
        window: s; sequence files have windows of `SEQUENCE_WINDOW`.

    Returns:
        ``day``, ``stream``, ``sensor``, ``seconds`` (of the window), ``window`` (its number since
        1970), ``readings``, ``first``, ``last`` (times).
    """
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    seconds = F.when(F.col("day") == F.lit(SEQUENCE_DAY), SEQUENCE_WINDOW).otherwise(window)
    return (
        readings.withColumn("seconds", seconds)
        .withColumn("window", F.floor(F.unix_seconds("timestamp") / F.col("seconds")))
        .groupBy("day", "stream", "sensor", "seconds", "window")
        .agg(
            F.count("*").alias("readings"),
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
        )
    )


def sensors(active: DataFrame, homes: DataFrame) -> DataFrame:
    """One row per sensor and stream.

    Args:
        active: as of `activity`, of all days.
        homes: ``sensor``, ``type``, ``home_lat``, ``home_lon``, ``region``.

    Returns:
        ``id``, ``stream``, ``sensor``, ``type``, ``region``, ``lat``, ``lon``, ``readings``,
        ``rate_median`` and ``rate_peak`` (tuples/s; over the windows in which it was active),
        ``tuple_bytes``, ``first``, ``last``, ``spans`` (start and end of each time it was active
        without a whole window's pause).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    series = ("stream", "sensor")
    rate = F.col("readings") / F.col("seconds")
    rates = active.groupBy(*series).agg(
        F.sum("readings").alias("readings"),
        F.median(rate).alias("rate_median"),
        F.max(rate).alias("rate_peak"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    in_time = Window.partitionBy(*series).orderBy("first")
    pause = F.coalesce(F.col("window") - F.lag("window").over(in_time) > 1, F.lit(True))
    spans = (
        active.withColumn("begins", pause.cast("int"))
        .withColumn("span", F.sum("begins").over(in_time))
        .groupBy(*series, "span")
        .agg(F.min("first").alias("start"), F.max("last").alias("end"))
        .groupBy(*series)
        .agg(F.sort_array(F.collect_list(F.struct("start", "end"))).alias("spans"))
    )
    return (
        rates.join(spans, [*series])
        .join(F.broadcast(homes), "sensor")
        .select(
            F.concat_ws("-", F.col("sensor").cast("string"), "stream").alias("id"),
            "stream",
            "sensor",
            "type",
            "region",
            F.col("home_lat").alias("lat"),
            F.col("home_lon").alias("lon"),
            "readings",
            "rate_median",
            "rate_peak",
            (F.octet_length("region") + FIXED_BYTES).cast("double").alias("tuple_bytes"),
            "first",
            "last",
            "spans",
        )
    )


def join_matrix(of_sensors: DataFrame, max_distance: float | None = None) -> DataFrame:
    """Which pressure sensor joins which humidity sensor: those of one region.

    Args:
        of_sensors: as of `sensors`.
        max_distance: km; pairs further apart do not join. Sensors without a position are near to
            all of their region.

    Returns:
        ``region``, ``left``, ``right`` (ids), ``distance`` (km, or null).
    """
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    def side(stream: str, name: str) -> DataFrame:
        return of_sensors.where(F.col("stream") == stream).select(
            "region",
            F.col("id").alias(name),
            F.col("lat").alias(f"{name}_lat"),
            F.col("lon").alias(f"{name}_lon"),
        )

    pairs = side("pressure", "left").join(side("humidity", "right"), "region")
    apart = distance(*map(F.col, ("left_lat", "left_lon", "right_lat", "right_lon")))
    pairs = pairs.select("region", "left", "right", apart.alias("distance"))
    if max_distance is not None:
        pairs = pairs.where(F.col("distance").isNull() | (F.col("distance") <= max_distance))
    return pairs
