"""How many tuples/s a host can take: ``OPERATOR SECONDS``.

Tuples come as lines of text, as from a sensor, and are parsed. Prints a JSON object.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable

# Tuples of each stream in a window; keys they are joined by.
WINDOW = 100
KEYS = 10


def lines(seed: int) -> list[bytes]:
    """A window of one stream: ``key,sequence,value`` a line."""
    draw = random.Random(seed)
    return [b"%d,%d,%.3f" % (draw.randrange(KEYS), i, draw.random()) for i in range(WINDOW)]


def window_join(left: list[bytes], right: list[bytes]) -> int:
    """Equi-join of two tumbling windows; returns the number of results."""
    table: dict[int, list[tuple[int, float]]] = {}
    for line in left:
        key, sequence, value = line.split(b",")
        table.setdefault(int(key), []).append((int(sequence), float(value)))
    results = 0
    for line in right:
        key, sequence, value = line.split(b",")
        own = (int(sequence), float(value))
        for other in table.get(int(key), ()):
            # Windows pair each tuple of one side with those of equal key on the other.
            if other[0] <= own[0]:
                results += 1
    return results


def filter_window(left: list[bytes], right: list[bytes]) -> int:
    """Selection of the tuples above a bound; returns how many there are."""
    return sum(float(line.split(b",")[2]) > 0.5 for window in (left, right) for line in window)


OPERATORS: dict[str, Callable[[list[bytes], list[bytes]], int]] = {
    "window-join": window_join,
    "filter": filter_window,
}


def main() -> None:
    """Work through windows until the time is over."""
    operator, seconds = OPERATORS[sys.argv[1]], float(sys.argv[2])
    left, right = lines(1), lines(2)
    operator(left, right)
    windows = 0
    begin, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - begin < seconds:
        operator(left, right)
        windows += 1
    took = time.monotonic() - begin
    answer = {
        "tuples": 2 * WINDOW * windows,
        "seconds": took,
        "cpu_seconds": time.process_time() - cpu,
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
