"""A user's SQL job, run by Flink's own Python: URL of the cluster, plan, regions to join."""

import json
import sys
from urllib.parse import urlsplit

from pyflink.common import Configuration
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, StreamTableEnvironment

from nova_core.errors import NovaError
from nova_flink.pin import pin

RATE, SECONDS = 100, 600

url, plan, regions = urlsplit(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
gateway = get_gateway()
java = gateway.jvm
environment = StreamExecutionEnvironment(
    java.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment.createRemoteEnvironment(
        url.hostname, url.port, Configuration()._j_configuration, gateway.new_array(java.String, 0)
    )
)
environment.set_parallelism(1)
tables = StreamTableEnvironment.create(environment)
number = java.org.apache.flink.api.common.typeinfo.Types.LONG
flink = java.org.apache.flink
for region in regions:
    for stream in ("pressure", "humidity"):
        count = RATE * SECONDS
        values = java.java.util.stream.LongStream.range(0, count).boxed().toList()
        made = flink.connector.datagen.functions.IndexLookupGeneratorFunction(number, values)
        limit = flink.api.connector.source.util.ratelimit.RateLimiterStrategy.perSecond(float(RATE))
        source = flink.connector.datagen.source.DataGeneratorSource(made, count, limit, number)
        none = flink.api.common.eventtime.WatermarkStrategy.noWatermarks()
        name = f"{stream}_{region}"
        stream_of = environment._j_stream_execution_environment.fromSource(source, none, name)
        schema = (
            Schema.new_builder()
            .column("f0", DataTypes.BIGINT())
            .column_by_expression("ts", "CURRENT_ROW_TIMESTAMP()")
            .watermark("ts", "ts - INTERVAL '0.001' SECOND")
            .build()
        )
        tables.create_temporary_view(name, tables.from_data_stream(DataStream(stream_of), schema))
tables.execute_sql("CREATE TABLE results (l BIGINT, r BIGINT) WITH ('connector' = 'blackhole')")
statements = tables.create_statement_set()
for region in regions:
    sides = (
        f"(SELECT * FROM TABLE(TUMBLE(TABLE {stream}_{region}, DESCRIPTOR(ts), "
        "INTERVAL '1' SECOND)))"
        for stream in ("pressure", "humidity")
    )
    statements.add_insert_sql(
        "INSERT INTO results SELECT L.f0, R.f0 FROM {} L JOIN {} R ON L.f0 = R.f0 "
        "AND L.window_start = R.window_start AND L.window_end = R.window_end".format(*sides)
    )
try:
    nodes = pin(statements, plan)
    job = str(environment.execute_async("pinned").get_job_id())
except NovaError as error:
    print(json.dumps({"error": str(error)}))
else:
    print(json.dumps({"job": job, "nodes": nodes}))
