"""Jobs of Flink that are handed over, see `nova_engines.handover`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_engines.handover import FAILED, FINISHED, RUNNING
from nova_flink.rest import ENDED

if TYPE_CHECKING:
    from nova_engines.source_orders import ControlledJob
    from nova_flink.rest import Rest


def state_of(flink_state: str) -> str:
    """The state of `nova_engines.handover` for Flink's state of a job."""
    if flink_state == "FINISHED":
        return FINISHED
    return FAILED if flink_state in ENDED else RUNNING


class FlinkJobs:
    """See `nova_engines.handover.Jobs`.

    Args:
        rest: of the cluster.
    """

    ends_failed_jobs = True
    behind_ms = 2000

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def state(self, job: ControlledJob) -> str:
        """As Flink reports it."""
        return state_of(self._rest.state(job.job))

    def cancel(self, job: ControlledJob) -> None:
        """Cancel the job if it runs."""
        if self.state(job) == RUNNING:
            self._rest.cancel(job.job)

    def wait_ended(self, job: ControlledJob, timeout_s: float) -> str:
        """Poll until the job has ended."""
        return state_of(self._rest.wait_ended(job.job, timeout_s))
