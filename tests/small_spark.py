"""Settings of Spark for inputs as small as tests have: what takes long there is to begin.

Few partitions, the JVM's first compiler alone, and plans that are interpreted as they are written:
to compile each, and to plan again by its rows, takes two fifths of the time of 3,000 rows. Examples
of pages and the demo run with Spark's own settings.
"""

from __future__ import annotations

SETTINGS = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# The same for a command line.
OPTIONS = [word for name, value in SETTINGS.items() for word in ("--spark-conf", f"{name}={value}")]
