"""Delivered results compared with expected ones: the same figures for joins and whole queries."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

EXAMPLES = 5


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a run, compared with the reference.

    Attributes:
        expected: results of the reference.
        delivered: all results of the run.
        lost: expected results that are missing although the run had continued or had finished.
        duplicated: results delivered again.
        wrong: results that are not expected, or from another instance than the plan's.
        cut_off: expected results that are missing because the run was ended.
        finished: whether the run ended by itself; then nothing is cut off.
        lost_per_pair: lost results of each pair of sources that lost any; of joins alone.
        examples: up to `EXAMPLES` lost, duplicated or wrong results as text.
    """

    expected: int
    delivered: int
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    cut_off: int = 0
    finished: bool = True
    lost_per_pair: dict[str, int] = {}
    examples: dict[str, list[str]] = {}

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, duplicated or wrong."""
        return not self.broken

    @property
    def broken(self) -> list[str]:
        """How many results were lost, duplicated or wrong, where any were."""
        counts = {"lost": self.lost, "duplicated": self.duplicated, "wrong": self.wrong}
        return [f"{count:,} {name}" for name, count in counts.items() if count]

    def lines(self) -> list[str]:
        """The examples, a line each."""
        return [f"{what}: {one}" for what, texts in self.examples.items() for one in texts]


def total(of_query: Mapping[str, Comparison], *, finished: bool) -> Comparison:
    """Comparisons of queries as one, whose examples name the query."""
    counts = ("expected", "delivered", "lost", "duplicated", "wrong", "cut_off")
    return Comparison(
        finished=finished,
        examples={
            kind: [
                f"{name}: {row}" for name, one in of_query.items() for row in one.examples[kind]
            ][:EXAMPLES]
            for kind in ("lost", "duplicated", "wrong")
        },
        **{name: sum(getattr(one, name) for one in of_query.values()) for name in counts},
    )
