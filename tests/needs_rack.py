"""Tests that run Flink on a virtual rack."""

from __future__ import annotations

from needs import skip_or_fail

from nova_core.errors import NovaError
from nova_harness.engines.flink import ready_home
from nova_testbed.rack.requirements import missing


def require() -> None:
    """Skip a test, or fail it in CI, where this machine has not what it needs."""
    reason = missing()
    try:
        ready_home(print)
    except NovaError as error:
        reason = str(error)
    if reason:
        skip_or_fail(str(reason))
