"""The rule ``sequence-share``: one table of partitions that every implementation has to give.

The engines' own ways through it, with cuts of random plans, are in their end-to-end tests.
"""

from __future__ import annotations

import random
import re
import subprocess
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from needs import skip_or_fail

from nova_core.errors import NovaError
from nova_core.model.partitioner import partition_of, reached
from nova_engines.compiling import compiler
from nova_engines.flow_of_plan import interval
from nova_engines.installing import java
from nova_nebulastream.expressions import within
from nova_spark.extension import build
from nova_spark.home import spark_home

JAVA = Path(__file__).parents[2] / "adapters" / "nova_engines" / "java" / "nova" / "engines"
STEP = 0x9E3779B97F4A7C15
# Rates of partitions, tuples/s.
RATES = ([1.0], [1.0, 1.0], [0.3, 0.6, 0.1], [5.0, 0.125, 7.0, 1e-3], [1e6, 1.0])


def sequences() -> list[int]:
    """The first ones, large ones, and those whose places are the last before a partition's end."""
    draw = random.Random(20)
    found = [*range(50), 2**31 - 1, 2**31, 2**53, 2**63 - 1]
    found += [draw.randrange(2**63) for _ in range(50)]
    inverse = pow(STEP, -1, 2**64)
    for rates in RATES:
        for end in accumulate(rate / sum(rates) for rate in rates):
            place = int(Fraction(end) * 2**53)
            around = [(min(max(one, 0), 2**53 - 1) << 11) * inverse % 2**64 for one in
                      (place - 1, place, place + 1)]  # fmt: skip
            found += [one for one in around if one < 2**63]
    return found


def expected(sequence: int, rates: list[float]) -> int:
    """By the text of the rule, with exact numbers but for the sums, which are 64-bit floats."""
    place = Fraction((sequence * STEP % 2**64) >> 11, 2**53)
    total = float(np.sum(rates))
    ends = [Fraction(end) for end in accumulate(rate / total for rate in rates)]
    return next((i for i, end in enumerate(ends) if place < end), len(rates) - 1)


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_python(rates: list[float]) -> None:
    numbers = sequences()
    wanted = [expected(one, rates) for one in numbers]
    assert partition_of(np.array(numbers, np.int64), np.array(rates)).tolist() == wanted
    for partition in range(len(rates)):
        ends = reached(np.array(rates)).tolist()
        low, high = interval(ends, partition, partition + 1)
        condition = within("seq", [low], [high])
        assert [in_sql(condition, one) for one in numbers] == [one == partition for one in wanted]


class Unsigned(int):
    """A UINT64 of NebulaStream, which is one of C++: products wrap."""

    def __mul__(self, other: int) -> Unsigned:
        return Unsigned(int(self) * int(other) % 2**64)


def in_sql(condition: str, sequence: int) -> bool:
    """What NebulaStream cuts by."""
    text = re.sub(r"UINT64\((\d+)\)", r"\1", condition).replace("AND", "and")
    return bool(eval(text or "True", {"seq": Unsigned(sequence)}))


SCALA = """
val bounds = args.map(_.split(":").map(_.toDouble))
for (line <- scala.io.Source.stdin.getLines()) {
  val place = org.apache.spark.sql.nova.Share.place(line.toLong)
  val found = bounds.indexWhere { one =>
    org.apache.spark.sql.nova.Share.holds(place, Array(one(0)), Array(one(1)))
  }
  println(found)
}
"""


def test_scala(tmp_path: Path) -> None:
    """What Spark cuts by."""
    try:
        jars = build()
    except NovaError as error:
        skip_or_fail(str(error))
    path = f"{spark_home()}/jars/*:{jars[0]}"
    script = tmp_path / "Cut.scala"
    script.write_text(SCALA)
    numbers = sequences()
    for rates in RATES[2:4]:
        command = [java(), "-XX:TieredStopAtLevel=1", "-Xss4m", "-cp", path]
        command += ["scala.tools.nsc.MainGenericRunner", "-usejavacp", "-nc", str(script)]
        done = subprocess.run(
            [*command, *bounds_of(rates)],
            input="\n".join(map(str, numbers)),
            text=True,
            capture_output=True,
            check=True,
        )
        assert [int(line) for line in done.stdout.split()] == [
            expected(one, rates) for one in numbers
        ]


def bounds_of(rates: list[float]) -> list[str]:
    """Of each partition, as LOW:HIGH."""
    total = float(np.sum(rates))
    ends = [0.0, *accumulate(rate / total for rate in rates)]
    # The last one holds whatever rounding leaves.
    return [f"{low!r}:{high!r}" for low, high in pairwise([*ends[:-1], 2.0])]


def test_java(tmp_path: Path) -> None:
    """What Flink and Storm cut by; compiled with nothing but a JDK."""
    try:
        javac = compiler()
    except NovaError as error:
        skip_or_fail(str(error))
    own = Path(__file__).parent / "java" / "Cut.java"
    command = [javac, "--release", "11", "-d", tmp_path, JAVA / "Intervals.java", own]
    subprocess.run(command, check=True)
    numbers = sequences()
    for rates in RATES:
        done = subprocess.run(
            [java(), "-XX:TieredStopAtLevel=1", "-cp", tmp_path, "Cut", *bounds_of(rates)],
            input="\n".join(map(str, numbers)),
            text=True,
            capture_output=True,
            check=True,
        )
        found = [int(line) for line in done.stdout.split()]
        assert found == [expected(one, rates) for one in numbers]
