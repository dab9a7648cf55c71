"""What Nova reads in dumps that ``nes-cli`` has printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nes_dumps import dumped, path, plans

from nova_engines.verification import Verification
from nova_nebulastream.explained import DumpError, explained, rooms, verify
from nova_nebulastream.queries import Query
from nova_nebulastream.topologies import worker


def read(name: str, scratch: Path, of: str = "") -> list[tuple[Query, str, dict[str, str]]]:
    """Queries of a plan, the dumps of another one, and the node of every worker."""
    found, hosts = dumped(plans(scratch)[name])
    nodes = {worker(address): node for node, address in hosts.items()}
    return [(one, path(of or name, n).read_text("utf-8"), nodes) for n, one in enumerate(found)]


def compared(name: str, scratch: Path, of: str = "") -> list[Verification]:
    return [verify(one, explained(text), nodes) for one, text, nodes in read(name, scratch, of)]


@pytest.mark.parametrize("name", ["cut", "moved", "relayed", "columns"])
def test_operators_are_as_planned(name: str, tmp_path: Path) -> None:
    for (query, _, _), found in zip(read(name, tmp_path), compared(name, tmp_path), strict=True):
        assert found.placed, found.rows
        names = {row.operator for row in found.rows}
        assert {one.name for one in query.top.walk() if one.name} <= names
        passed = {name for one in query.top.walk() for _, name, _ in one.passes}
        assert passed <= names and not found.note


def test_a_join_on_another_worker_is_found(tmp_path: Path) -> None:
    wrong = 0
    for (query, _, _), found in zip(
        read("cut", tmp_path), compared("cut", tmp_path, "moved"), strict=True
    ):
        misplaced = {row.operator: row.actual for row in found.misplaced}
        # What the optimizer has put above the join is with it.
        assert (query.result in misplaced) == (query.placed != ("n 6",))
        assert set(misplaced.values()) <= {"n 6"}
        wrong += bool(misplaced)
    assert wrong >= 2


def test_a_filter_on_another_worker_is_found(tmp_path: Path) -> None:
    """As if the partition's filter, and what is below it, were with the join."""
    for query, text, nodes in read("cut", tmp_path):
        fragment = re.search(r"^ *(SELECTION\(.*\))$", text.split("== Decomposed")[1], re.M)
        if fragment is None:
            continue
        sender, join = query.inputs[0].node, query.placed[0]
        by_node = {node: worker for worker, node in nodes.items()}
        swapped = text.replace(f"on {by_node[sender]} --", "on nowhere:1 --")
        found = verify(query, explained(swapped), nodes)
        assert not found.placed
        assert {row.actual for row in found.misplaced} == {"nowhere:1"}
        assert query.inputs[0].source in " ".join(row.operator for row in found.misplaced)
        assert join not in {row.actual for row in found.misplaced}


def test_room_is_for_what_the_plan_has_there(tmp_path: Path) -> None:
    for query, text, _ in read("cut", tmp_path):
        dump = explained(text)
        counts = rooms(query, dump)
        assert set(counts) == set(query.nodes)
        ends = sum(one.kind in ("source", "sink") for one in dump.plan.walk())
        assert sum(counts.values()) == sum(1 for _ in dump.plan.walk()) - ends
        assert counts[query.top.node] == 0 and counts[query.placed[0]] >= 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: "", "expected '== Optimized Global Plan =='"),
        (lambda text: text.split("-- 1 plan")[0], "no worker has a plan"),
        (lambda text: text.replace("Join(", "Jumble("), "operators below it|no plan in"),
        (lambda text: text.replace("WATERMARK_ASSIGNER", "SOURCE"), "operators below it"),
    ],
)
def test_what_is_no_dump_is_refused(tmp_path: Path, change: object, complaint: str) -> None:
    query, text, nodes = read("cut", tmp_path)[0]
    assert callable(change)
    with pytest.raises(DumpError, match=complaint):
        verify(query, explained(change(text)), nodes)


def test_a_dump_of_another_query_is_refused(tmp_path: Path) -> None:
    (query, _, nodes), *_ = read("columns", tmp_path)
    _, text, _ = read("cut", tmp_path)[0]
    with pytest.raises(DumpError, match="where the query has"):
        verify(query, explained(text), nodes)
