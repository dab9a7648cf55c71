"""Experiments on Spark in Real-Time Mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_harness.experiment import on_spark

if TYPE_CHECKING:
    from nova_harness.deployment import Tell
    from nova_harness.experiment.engine import Opener


def prepare(tell: Tell) -> Opener:
    """See `nova_harness.experiment.engine.prepare`."""
    return on_spark.prepare(tell, real_time=True)
