"""What a run delivered beside what it had to: the same figures for joins and for whole queries."""

from __future__ import annotations

import msgspec

EXAMPLES = 5


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a run, compared with the reference.

    Attributes:
        expected: results that had to come.
        delivered: results that came, all counted.
        lost: had to come and did not, although the run had gone on or had finished.
        duplicated: came once more.
        wrong: came and had not to, or from another instance than the plan's.
        cut_off: did not come because the run was ended.
        finished: whether the run came to its end by itself; then nothing is cut off.
        lost_per_pair: lost results of each pair of sources that lost any; of joins alone.
        examples: up to `EXAMPLES` that were lost, duplicated or wrong, for people.
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
        return [f"{what}: {one}" for what, found in self.examples.items() for one in found]
