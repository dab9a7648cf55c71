"""The two logical streams that the Nova paper joins, by region."""

from __future__ import annotations

PRESSURE, HUMIDITY = STREAMS = ("pressure", "humidity")
