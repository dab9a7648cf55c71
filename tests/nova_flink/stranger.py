"""A PyFlink program that knows nothing of Nova: numbers of a second, summed by key."""

from pyflink.table import EnvironmentSettings, TableEnvironment

tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
tables.execute_sql(
    "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10')"
)
tables.execute_sql("CREATE TABLE sums (k BIGINT, s BIGINT) WITH ('connector' = 'blackhole')")
tables.execute_sql("INSERT INTO sums SELECT MOD(n, 5), SUM(n) FROM numbers GROUP BY MOD(n, 5)")
