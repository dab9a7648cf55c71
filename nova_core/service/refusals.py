"""What is refused, and the HTTP status of it."""

from __future__ import annotations

from nova_core.errors import InfeasibleError, NovaError, UnwritableError


class RefusedError(NovaError):
    """A request that gets an HTTP status of its own.

    Attributes:
        status: 404 for a name that means nothing, 409 for what cannot take effect, 410 for deltas
            that are not kept, 412 for another version, 503 for what cannot be read or has ended.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def status_of(error: NovaError) -> int:
    """The HTTP status of a refusal."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, UnwritableError):
        return 503
    return 409 if isinstance(error, InfeasibleError) else 400
