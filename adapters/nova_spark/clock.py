"""Tells the sources of a query how far time is, so that they emit what is due.

A Python data source of its own for every input would take a Python process on the driver each, and
2 s of a busy core to start. Instead all inputs of a query read one stream of spans of time, and
make their tuples of it where they run. Spark's ``MemoryStream`` carries the spans: it comes with
Spark, which uses it in its own tests, but is not part of its public interface.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_spark.tasks import SPAN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# A span is told in parts of at most this, so that tuples overdue come in batches.
MOST_US = 1_000_000


class Clock:
    """The spans one query has been told.

    Args:
        spark: the query's session.

    Attributes:
        frame: one column, ``value``: `nova_spark.tasks.SPAN`.
    """

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql.classic.dataframe import DataFrame

        context: Any = spark.sparkContext
        self._jvm = context._jvm
        try:
            streams = self._jvm.org.apache.spark.sql.execution.streaming.runtime
            self._stream = streams.MemoryStream.apply(
                spark._jsparkSession, 1, self._jvm.org.apache.spark.sql.Encoders.STRING()
            )
        except TypeError as error:
            raise NovaError(
                f"Spark {spark.version} has no MemoryStream where Nova looks for it; 4.3 does"
            ) from error
        self.frame: DataFrame = DataFrame(self._stream.toDF(), spark)
        self._told, self._through = 0, -1

    def tell(self, start_ms: int, begin_us: int, end_us: int) -> None:
        """Have tuples emitted that are due in a span.

        Args:
            start_ms: when the first tuple is due, ms since the epoch.
            begin_us: of the span, us after that; where the one before ended.
            end_us: end of the span.
        """
        bounds = [*range(begin_us, end_us, MOST_US), end_us]
        ends = bounds[1:] or bounds
        spans = [
            SPAN.format(start_ms=start_ms, begin_us=begin, end_us=end)
            for begin, end in zip(bounds, ends, strict=False)
        ]
        sequence = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(spans)
        self._stream.addData(sequence)
        self._told += 1

    def heard(self, query: StreamingQuery) -> bool:
        """Whether all that has been told is through."""
        progress: Any = query.lastProgress
        if progress is not None:
            offsets = [json.loads(one["endOffset"]) for one in progress["sources"]]
            # Nothing has been read where Spark has no offset yet.
            self._through = max(self._through, *(-1 if one is None else one for one in offsets))
        return self._through >= self._told - 1
