"""Settings of Spark for inputs as small as tests have: few partitions, compiled in a hurry."""

from __future__ import annotations

SETTINGS = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}
# The same for a command line.
OPTIONS = [word for name, value in SETTINGS.items() for word in ("--spark-conf", f"{name}={value}")]
