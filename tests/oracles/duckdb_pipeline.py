"""The Sensor.Community pipeline again, in DuckDB's SQL: what Spark's output is held against.

Written from the documentation (docs/workloads.md), with nothing of `nova_workloads`, for archives
whose good files have no malformed line, as `nova data synth` makes them. Run it as a program to
prepare an archive: ``python -m tests.oracles.duckdb_pipeline ARCHIVE OUTPUT [THREADS]``.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from pathlib import Path
from typing import Any

PLACE = "sensor_id;sensor_type;location;lat;lon;timestamp"
HEADERS = {
    "bmp280": f"{PLACE};pressure;altitude;pressure_sealevel;temperature",
    "bme280": f"{PLACE};pressure;altitude;pressure_sealevel;temperature;humidity",
    "dht22": f"{PLACE};temperature;humidity",
    "mixed": f"{PLACE};pressure;altitude;pressure_sealevel;temperature;humidity",
}
HOTTEST = {"bmp280": 85, "bme280": 85, "dht22": 80}  # degrees Celsius
NAME = re.compile(r"\d{4}-\d\d-\d\d_(bmp280|bme280|dht22|mixed)[^/]*\.csv(\.gz)?$")


def good_files(archive: Path) -> dict[str, list[str]]:
    """Files by type that are what their names claim."""
    good: dict[str, list[str]] = {kind: [] for kind in HEADERS}
    for path in sorted(archive.rglob("*.csv*")):
        named = NAME.match(path.name)
        if named is None:
            continue
        content = path.read_bytes()
        if path.suffix == ".gz":
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error):
                continue
        header = HEADERS[named[1]].encode() + b"\n"
        last = content[content.rfind(b"\n") + 1 :]
        whole = not last or last.count(b";") == header.count(b";")
        if content.startswith(header) and whole:
            good[named[1]].append(str(path))
    return good


def prepare(archive: Path, output: Path, threads: int = 2) -> None:
    """Write readings, dropped (counts), sensors and join_matrix as Parquet."""
    import duckdb

    output.mkdir(parents=True, exist_ok=True)
    con = duckdb.connect()
    con.execute(f"SET threads = {threads}; SET TimeZone = 'UTC'; SET memory_limit = '8GB'")
    con.execute(f"SET temp_directory = '{output}/spill'")
    files = {kind: paths for kind, paths in good_files(archive).items() if paths}
    lines = " UNION ALL ".join(_lines(kind, paths) for kind, paths in files.items())
    con.execute(f"CREATE TABLE lines AS {lines}")
    con.execute(_JUDGED)
    con.execute(_READINGS)
    for table, columns, by in (
        (
            "readings",
            "sensor, region, timestamp, value, day, stream",
            "PARTITION_BY (day, stream),",
        ),
        ("dropped", "reason, stream, day, readings", ""),
        ("sensors", "*", ""),
        ("join_matrix", "*", ""),
    ):
        con.execute(
            f"COPY (SELECT {columns} FROM {table}_out) TO '{output}/{table}"
            f"{'' if by else '.parquet'}' (FORMAT parquet, {by} COMPRESSION zstd)"
        )


def _lines(kind: str, paths: list[str]) -> str:
    names = HEADERS[kind].split(";")
    columns = ", ".join(f"'{name}': 'VARCHAR'" for name in names)
    values = ", ".join(
        name if name in names else f"NULL AS {name}"
        for name in ("pressure", "temperature", "humidity")
    )
    return f"""
        SELECT filename, row_number() OVER () AS line, CAST(sensor_id AS BIGINT) AS sensor,
            lower(sensor_type) AS type, CAST(lat AS DOUBLE) AS lat, CAST(lon AS DOUBLE) AS lon,
            CAST(timestamp AS TIMESTAMP) AS timestamp, {values}
        FROM read_csv({paths!r}, delim = ';', header = true, quote = '', escape = '',
            auto_detect = false, nullstr = '\x01', filename = true, columns = {{{columns}}})"""


_HOT = " ".join(f"WHEN '{kind}' THEN {most}" for kind, most in HOTTEST.items())
_JUDGED = f"""
CREATE TABLE judged AS
WITH readings AS (
    SELECT * REPLACE (TRY_CAST(temperature AS DOUBLE) AS temperature), 'pressure' AS stream,
        pressure AS text
    FROM lines WHERE type IN ('bmp280', 'bme280')
    UNION ALL
    SELECT * REPLACE (TRY_CAST(temperature AS DOUBLE) AS temperature), 'humidity' AS stream,
        humidity AS text
    FROM lines WHERE type IN ('dht22', 'bme280')
), own AS (
    SELECT *, TRY_CAST(text AS DOUBLE) AS value,
        CAST(regexp_extract(filename, '([0-9-]{{10}})_[^/]*$', 1) AS DATE) AS day,
        CASE
            WHEN text = '' THEN 'missing'
            WHEN value IS NULL OR NOT isfinite(value) THEN 'not_a_number'
            WHEN stream = 'pressure' AND value NOT BETWEEN 30000 AND 110000
                THEN 'impossible_pressure'
            WHEN stream = 'humidity' AND value NOT BETWEEN 0 AND 100 THEN 'impossible_humidity'
            WHEN isfinite(temperature)
                AND temperature NOT BETWEEN -40 AND CASE type {_HOT} END
                THEN 'impossible_temperature'
            WHEN CAST(timestamp AS DATE) <> day THEN 'clock_jump'
        END AS reason
    FROM readings
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY filename, sensor, stream, reason, timestamp
                                 ORDER BY line) AS time_repeated
    FROM own
), ordered AS (
    SELECT *,
        coalesce(timestamp < max(timestamp) OVER (series ORDER BY line
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS behind,
        coalesce(timestamp > min(timestamp) OVER (series ORDER BY line
            ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), false) AS ahead
    FROM numbered WHERE reason IS NULL AND time_repeated = 1
    WINDOW series AS (PARTITION BY filename, sensor, stream)
), counted AS (
    SELECT *, count(*) FILTER (behind) OVER (PARTITION BY filename, sensor, stream) AS all_behind,
        count(*) FILTER (ahead) OVER (PARTITION BY filename, sensor, stream) AS all_ahead
    FROM ordered
)
SELECT stream, sensor, type, lat, lon, timestamp, value, day,
    CASE WHEN CASE WHEN all_behind <= all_ahead THEN behind ELSE ahead END
        THEN 'out_of_order' END AS reason
FROM counted
UNION ALL
SELECT stream, sensor, type, lat, lon, timestamp, value, day, coalesce(reason, 'duplicate')
FROM numbered WHERE reason IS NOT NULL OR time_repeated > 1
"""
_READINGS = """
CREATE TABLE homes AS
SELECT sensor, arg_min(type, timestamp) AS type, arg_min(lat, timestamp) AS home_lat,
    arg_min(lon, timestamp) AS home_lon,
    printf('%.2f_%.2f', floor(home_lat), floor(home_lon)) AS region
FROM judged WHERE reason IS NULL GROUP BY sensor;
CREATE TABLE placed AS
SELECT judged.* EXCLUDE (reason), region,
    CASE WHEN reason IS NULL AND 2 * 6371.0088 * asin(least(1, sqrt(
            pow(sin(radians(home_lat - lat) / 2), 2)
            + cos(radians(lat)) * cos(radians(home_lat))
            * pow(sin(radians(home_lon - lon) / 2), 2)))) > 1 THEN 'moved' ELSE reason END AS reason
FROM judged LEFT JOIN homes USING (sensor);
CREATE VIEW readings_out AS
SELECT * FROM placed WHERE reason IS NULL ORDER BY day, stream, sensor, timestamp;
CREATE VIEW dropped_out AS
SELECT reason, stream, day, count(*) AS readings FROM placed GROUP BY ALL;
CREATE TABLE windows AS
SELECT stream, sensor, CAST(floor(epoch(timestamp) / 3600) AS BIGINT) AS hour,
    count(*) AS readings, min(timestamp) AS first, max(timestamp) AS last
FROM placed WHERE reason IS NULL GROUP BY ALL;
CREATE TABLE sensors_out AS
WITH begun AS (
    SELECT *, coalesce(hour - lag(hour) OVER (PARTITION BY stream, sensor ORDER BY hour) > 1, true)
        AS begins FROM windows
), numbered AS (
    SELECT *, sum(CAST(begins AS INT)) OVER (PARTITION BY stream, sensor ORDER BY hour) AS span
    FROM begun
), spans AS (
    SELECT stream, sensor, span, min(first) AS begin, max(last) AS until
    FROM numbered GROUP BY ALL
), rates AS (
    SELECT stream, sensor, CAST(sum(readings) AS BIGINT) AS readings,
        median(readings / 3600) AS rate_median, max(readings / 3600) AS rate_peak
    FROM windows GROUP BY ALL
)
SELECT concat(sensor, '-', stream) AS id, stream, sensor, type, region, home_lat AS lat,
    home_lon AS lon, readings, rate_median, rate_peak,
    CAST(24 + strlen(region) AS DOUBLE) AS tuple_bytes,
    (SELECT list({'start': begin, 'end': until} ORDER BY begin) FROM spans
     WHERE spans.stream = rates.stream AND spans.sensor = rates.sensor) AS spans
FROM rates JOIN homes USING (sensor);
CREATE VIEW join_matrix_out AS
SELECT l.region, l.id AS left, r.id AS right
FROM sensors_out l JOIN sensors_out r USING (region)
WHERE l.stream = 'pressure' AND r.stream = 'humidity';
"""


def main(arguments: list[str]) -> Any:
    """Prepare an archive."""
    archive, output = map(Path, arguments[:2])
    prepare(archive, output, int(arguments[2]) if len(arguments) > 2 else 2)


if __name__ == "__main__":
    main(sys.argv[1:])
