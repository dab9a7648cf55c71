"""Errors meant for people: what was wrong, where, and what would be right."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type's name if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class NovaError(Exception):
    """Base of every error Nova raises on purpose; its text is one line for a person.

    ``exit_code`` is what the command line returns for it.
    """

    exit_code = 2


class ProblemError(NovaError):
    """A problem document or table that cannot be used as it stands."""


class ProblemWarning(UserWarning):
    """A problem document that was corrected on reading; says what was changed and by how much."""


class PlanError(NovaError):
    """A plan document that cannot be read, or that answers another problem."""


class UnwritableError(NovaError):
    """Something that could not be written; the previous content is unchanged."""


class InfeasibleError(NovaError):
    """No placement keeps every constraint.

    Attributes:
        missing: the capacity that is missing, tuples/s.
    """

    def __init__(self, message: str, missing: float) -> None:
        super().__init__(message)
        self.missing = missing
