"""What tasks of one's own jobs tell, without Spark around them."""

from __future__ import annotations

from nova_spark.tasks import KEPT, StagesSeen


def test_stages_seen_are_the_latest() -> None:
    param = StagesSeen()
    found = param.addInPlace({"a": {1}}, {"a": {2}, "b": {5}})
    assert found == {"a": {1, 2}, "b": {5}}
    found = param.addInPlace(found, {"a": set(range(2 * KEPT))})
    assert found["a"] == set(range(KEPT, 2 * KEPT))
