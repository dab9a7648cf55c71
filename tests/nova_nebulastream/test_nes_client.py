"""The client of 0.x against a stand-in of its coordinator (`nes_coordinator`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nes_coordinator import StandIn
from nes_plans import nes_plan

from nova_core.errors import NovaError
from nova_engines.documents import from_json, to_json
from nova_nebulastream import __main__ as command
from nova_nebulastream import client
from nova_nebulastream.client import Coordinator, NebulaStreamError, deploy
from nova_nebulastream.legacy import Deployment
from nova_nebulastream.translate import translate


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "POLL_S", 0.005)


def translated(seed: int, target: Path, *, routes: bool = False) -> Deployment:
    plan = nes_plan(seed, routes=routes)
    translate(plan, plan.problem, target, nes_version="0.x")
    return from_json((target / "deployment.json").read_text(), Deployment, "d")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("layout", ["old", "new"])
def test_every_operator_is_where_the_plan_has_it(seed: int, layout: str, tmp_path: Path) -> None:
    made = translated(seed, tmp_path / "out")
    stand_in = StandIn.started_from(tmp_path / "out", layout=layout)
    told: list[str] = []
    with stand_in.serving() as url:
        placed = deploy(Coordinator(url), made, 5, told.append)
    plan = nes_plan(seed)
    assert len(placed) == len(told) == len(plan.instances)
    assert stand_in.stopped == []
    for one, node in zip(placed, plan.instances.node.tolist(), strict=True):
        assert one.ok
        join = next(row for row in one.rows if row.operator == "JOIN")
        assert join.actual == (made.workers[f"n {node}"],)


def test_relays_lie_on_the_way(tmp_path: Path) -> None:
    """Of plans 0.x takes: seeds for which inputs do not meet before the join."""
    relayed = 0
    for seed in range(12):
        target = tmp_path / str(seed)
        try:
            made = translated(seed, target, routes=True)
        except NovaError:
            continue
        with StandIn.started_from(target).serving() as url:
            assert all(one.ok for one in deploy(Coordinator(url), made, 5))
        relayed += sum(len(query.links) > 3 for query in made.queries)
    assert relayed > 0


def test_links_of_another_placement_are_noticed(tmp_path: Path) -> None:
    """A coordinator that does not take links joins at the root, and the client says so."""

    class Stubborn(StandIn):
        def link(self, add: bool, parent: int, child: int) -> tuple[int, Any]:
            return 200, {"success": True}

    made = translated(1, tmp_path / "out")
    with Stubborn.started_from(tmp_path / "out").serving() as url:
        placed = deploy(Coordinator(url), made, 5)
    wrong = [row for one in placed for row in one.rows if not row.ok]
    assert {row.operator for row in wrong} == {"JOIN"}
    assert {row.actual for row in wrong} == {(1,)}


def test_a_query_that_fails_stops_all(tmp_path: Path) -> None:
    made = translated(0, tmp_path / "out")
    stand_in = StandIn.started_from(tmp_path / "out", ends="FAILED")
    with stand_in.serving() as url, pytest.raises(NebulaStreamError, match="query 1 is FAILED"):
        deploy(Coordinator(url), made, 5)
    assert stand_in.stopped == [1]


def test_a_query_that_never_runs_is_given_up(tmp_path: Path) -> None:
    made = translated(0, tmp_path / "out")
    stand_in = StandIn.started_from(tmp_path / "out", ends="DEPLOYED")
    with (
        stand_in.serving() as url,
        pytest.raises(NebulaStreamError, match=r"DEPLOYED after 0\.2 s"),
    ):
        deploy(Coordinator(url), made, 0.2)
    assert stand_in.stopped == [1]


def test_what_the_coordinator_refuses(tmp_path: Path) -> None:
    made = translated(0, tmp_path / "out")
    broken = replace(made, queries=(replace(made.queries[0], text="Query::from"),))
    with StandIn.started_from(tmp_path / "out").serving() as url:
        with pytest.raises(NebulaStreamError, match="execute-query: 400: logical source not found"):
            deploy(Coordinator(url), broken, 5)
        with pytest.raises(NebulaStreamError, match="404: No query with given ID: 77"):
            Coordinator(url).status(77)
        missing = replace(made, workers={**made.workers, "far": 99})
        with pytest.raises(NebulaStreamError, match=r"no worker far \(99\); there are 1, 2"):
            deploy(Coordinator(url), missing, 5)


def test_what_is_no_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("here", "http://here", "ftp://here:8081"):
        with pytest.raises(NebulaStreamError, match="expected http://HOST:PORT"):
            Coordinator(url)
    with pytest.raises(NebulaStreamError, match="no answer from NebulaStream's coordinator"):
        Coordinator("http://127.0.0.1:1").topology()
    translated(0, tmp_path / "out")
    stand_in = StandIn.started_from(tmp_path / "out")
    with stand_in.serving() as url:
        monkeypatch.setattr(stand_in, "answer", lambda *_: (200, {"nodes": [{}]}))
        with pytest.raises(NebulaStreamError, match=r"topology: not an answer of NebulaStream 0\."):
            Coordinator(url).topology()


def test_submit_script_and_curl_calls_do_the_same(tmp_path: Path) -> None:
    """Both leave the same queries in the same places."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    translated(3, tmp_path / "out")
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"}
    seen = []
    for script in ("submit.sh", "calls.sh"):
        stand_in = StandIn.started_from(tmp_path / "out")
        with stand_in.serving() as url:
            arguments = ["--rest", url, "--json"] if script == "submit.sh" else []
            done = subprocess.run(
                [tmp_path / "out" / script, *arguments],
                env=environment | {"REST": url},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        assert done.returncode == 0, done.stderr
        if script == "submit.sh":
            assert json.loads(done.stdout)["ok"] is True
        seen.append((stand_in.queries, stand_in.parents))
    assert seen[0] == seen[1]


def test_a_query_nobody_runs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator's execution plan of it is null."""
    made = translated(0, tmp_path / "out")
    stand_in = StandIn.started_from(tmp_path / "out")
    monkeypatch.setattr(stand_in, "execution_plan", lambda _: None)
    with stand_in.serving() as url:
        placed = deploy(Coordinator(url), made, 5)
    assert not any(one.ok for one in placed)
    assert {row.actual for one in placed for row in one.rows} == {()}


def test_interrupted_it_stops_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated(0, tmp_path / "out")
    stand_in = StandIn.started_from(tmp_path / "out")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Coordinator, "wait", interrupted)
    with stand_in.serving() as url:
        monkeypatch.setattr(
            sys, "argv", ["x", str(tmp_path / "out" / "deployment.json"), "--rest", url]
        )
        assert command.run() == 130
    assert stand_in.stopped == [1]


def test_command_tells_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text('{"rest": "x"}')
    for file, complaint in (("d.json", "workers is missing"), ("none.json", "no such file")):
        done = subprocess.run(
            [sys.executable, "-m", "nova_nebulastream", tmp_path / file],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


def test_deployment_round_trips(tmp_path: Path) -> None:
    made = translated(2, tmp_path / "out")
    assert from_json(to_json(made), Deployment, "d") == made
    for plain, complaint in (
        ([], r"there: \[\]: expected an object"),
        ({"rest": "x", "workers": {"a": "b"}, "queries": []}, "there.workers.a: 'b': expected int"),
        ({"queries": [1]}, "there: rest is missing"),
    ):
        with pytest.raises(NovaError, match=complaint):
            from_json(json.dumps(plain), Deployment, "there")


def test_lines_of_plans() -> None:
    found = {
        1: ["SINK(opId: 1)", "  |--Join(3)", "└──SOURCE(2,logical)", "SOURCE(NetworkSource)"],
        2: ["FILTER(opId: 4, Join(5))"],
    }
    assert client._workers(found, "JOIN") == (1,)
    assert client._workers(found, "SOURCE") == (1,)
    assert client._workers(found, "FILTER") == (2,)
