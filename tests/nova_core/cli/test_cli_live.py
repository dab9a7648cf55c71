"""`nova live` and `nova replan`."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from oracles.live_placement import free_capacity

from nova_core.io.files import read_plan, read_problem, write_plan, write_problem
from nova_core.placement.live import Journal
from nova_core.placement.live.journal import VERSION
from nova_core.schemas import schema_of
from nova_core.strategies import place
from nova_workloads.live_events import RandomEvents
from nova_workloads.topology import generate

NOVA = [sys.executable, "-c", "from nova_core.cli import main; main()"]
EVENTS: list[dict[str, Any]] = [
    {"event": "change-rate", "source": "n1", "rate": 20},
    {"event": "add-worker", "node": {"id": "D", "capacity": 60, "position": [-30, 40]}},
    {"event": "fail-node", "node": "A"},
    {"event": "change-capacity", "node": "B", "capacity": 45},
    {"event": "move-node", "node": "D", "position": [-31, 41]},
    {
        "event": "batch",
        "events": [
            {
                "event": "add-source",
                "source": {"id": "n9", "node": "n2", "stream": "T", "rate": 5},
                "joins": [{"operator": "tw", "with": "nw", "output_rate": 3}],
            },
            {"event": "remove-source", "source": "n2"},
        ],
    },
    {"event": "change-link", "from": "n1", "to": "D", "budget": 100},
]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    return path


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_events_become_deltas(nova, problem: Path, plan: Path, events: Path) -> None:
    result = nova("live", problem, plan, "--events", events)
    assert result.exit_code == 0, result.output
    deltas = lines(result.stdout)
    assert [delta["new_version"] for delta in deltas] == list(range(1, len(EVENTS) + 1))
    schema = Draft202012Validator(schema_of("plan-delta"))
    assert not [error for delta in deltas for error in schema.iter_errors(delta)]
    assert {row["node"] for row in deltas[2]["stop"]} | {
        row["from"] for row in deltas[2]["move"]
    } == {"A"}
    assert [name.partition("*")[0] for name in deltas[5]["added"]] == ["tw/n9"]


def test_the_event_schema_accepts_events(events: Path) -> None:
    schema = Draft202012Validator(schema_of("event"))
    for event in EVENTS:
        assert not list(schema.iter_errors(event))
    assert list(schema.iter_errors({"event": "fail-node"}))


def test_a_refused_event_is_told_and_the_rest_goes_on(
    nova, problem: Path, plan: Path, tmp_path: Path
) -> None:
    file = tmp_path / "e.jsonl"
    file.write_text(
        "nonsense\n\n"
        '{"event": "change-capacity", "node": "sink", "capacity": 1}\n'
        '{"event": "fail-node", "node": "nix"}\n'
        '{"event": "change-rate", "source": "n1", "rate": 24}\n'
    )
    result = nova("live", problem, plan, "--events", file)
    assert result.exit_code == 1
    broken, infeasible, unknown, fine = lines(result.stdout)
    assert broken["error"].startswith(f"{file}: line 1: no JSON")
    assert infeasible["error"].startswith(f"{file}: line 3: ")
    assert infeasible["missing"] > 0
    assert unknown["error"].startswith(f"{file}: line 4: unknown node 'nix'")
    assert fine["new_version"] == 1


def test_a_journal_goes_on_after_kill_9(
    nova, problem: Path, plan: Path, events: Path, tmp_path: Path
) -> None:
    """Killed after the third answer, with the fourth event half written to its input."""
    process = subprocess.Popen(
        [*NOVA, "live", str(problem), str(plan), "--journal", str(tmp_path / "j")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    texts = events.read_bytes().splitlines(keepends=True)
    answers = []
    for text in texts[:3]:
        process.stdin.write(text)
        process.stdin.flush()
        # An answer comes at once, not when the pipe is full.
        answers.append(json.loads(process.stdout.readline()))
    process.stdin.write(texts[3][:10])
    process.stdin.flush()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    rest = nova(
        "live", problem, plan, "--events", events, "--journal", tmp_path / "j", "--skip-seen"
    )
    assert rest.exit_code == 0, rest.output
    assert "continues after 3 events, version 3" in rest.stderr
    whole = nova("live", problem, plan, "--events", events)
    assert answers + lines(rest.stdout) == lines(whole.stdout)
    again = nova("live", problem, plan, "--events", events, "--journal", tmp_path / "j",
                 "--skip-seen")  # fmt: skip
    assert again.stdout == ""
    assert Journal.resume(tmp_path / "j").live.version == len(EVENTS)


def test_a_second_one_on_the_same_journal_ends_at_once(
    nova, problem: Path, plan: Path, events: Path, tmp_path: Path
) -> None:
    """It names the first, which is not disturbed."""
    first = subprocess.Popen(
        [*NOVA, "live", str(problem), str(plan), "--journal", str(tmp_path / "j")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert first.stdin is not None
    assert first.stdout is not None
    texts = events.read_bytes().splitlines(keepends=True)
    first.stdin.write(texts[0])
    first.stdin.flush()
    assert json.loads(first.stdout.readline())["new_version"] == 1
    second = nova("live", problem, plan, "--events", events, "--journal", tmp_path / "j")
    assert second.exit_code == 2
    assert second.stdout == ""
    assert second.stderr.startswith("nova: error: ")
    assert f"process {first.pid} uses it" in second.stderr
    rest, _ = first.communicate(b"".join(texts[1:]))
    assert first.returncode == 0
    assert [line["new_version"] for line in lines(rest.decode())] == list(range(2, len(EVENTS) + 1))
    assert Journal.resume(tmp_path / "j").entries == len(EVENTS)


def test_a_journal_that_cannot_be_written_ends_it(
    nova, problem: Path, plan: Path, events: Path, tmp_path: Path
) -> None:
    """What it has answered is there; the same file once more goes on after it."""
    nova("live", problem, plan, "--events", os.devnull, "--journal", tmp_path / "j")
    whole = lines(nova("live", problem, plan, "--events", events).stdout)
    answered: list[Any] = []
    for limit in range(100, 2000, 150):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        arguments = ["live", str(problem), str(plan), "--events", str(events), "--skip-seen"]
        done = subprocess.run(
            [*NOVA, *arguments, "--journal", str(tmp_path / "j")],
            capture_output=True,
            text=True,
            preexec_fn=lambda n=limit, m=hard: resource.setrlimit(resource.RLIMIT_FSIZE, (n, m)),
        )
        answered += lines(done.stdout)
        assert answered == whole[: len(answered)]
        if done.returncode == 0:
            break
        assert done.returncode == 2
        assert "events-0.jsonl: cannot be written: File too large" in done.stderr
        assert "Traceback" not in done.stderr
    assert answered == whole
    assert soft == resource.getrlimit(resource.RLIMIT_FSIZE)[0]


DAMAGE: list[tuple[str, str]] = [
    ("state-0/live.json", ""),
    ("state-0/live.json", "[]"),
    ("state-0/live.json", f'{{"nova_live": {VERSION}}}'),
    ("state-0/live.json", f'{{"nova_live": {VERSION}, "policy": {{"gian": 1}}}}'),
    ("state-0/problem/problem.yaml", ""),
    ("state-0/plan/plan.json", "[]"),
    ("events-0.jsonl", "[]\n"),
    ("events-0.jsonl", '{"entry": 1}\n'),
]


@pytest.mark.parametrize(("name", "text"), DAMAGE)
def test_a_damaged_journal_is_one_line(
    nova, problem: Path, plan: Path, events: Path, tmp_path: Path, name: str, text: str
) -> None:
    nova("live", problem, plan, "--events", os.devnull, "--journal", tmp_path / "j")
    (tmp_path / "j" / name).write_text(text)
    done = nova("live", problem, plan, "--events", events, "--journal", tmp_path / "j")
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("nova: error: ")
    assert done.stderr.count("\n") == 1


def test_kill_9_in_the_middle_of_a_stream_changes_nothing(nova, tmp_path: Path) -> None:
    """Killed while it works through many events, not between two."""
    asked = generate(100, seed=6)
    problem, plan, events = (tmp_path / name for name in ("p.yaml", "plan.json", "e.jsonl"))
    write_problem(asked, problem)
    write_plan(place(read_problem(problem)), plan)
    draw = RandomEvents(asked, 6, ("change-rate", "change-capacity", "move-node"))
    events.write_bytes(b"".join(msgspec.json.encode(draw.next()) + b"\n" for _ in range(2000)))
    arguments = [str(problem), str(plan), "--events", str(events)]
    process = subprocess.Popen(
        [*NOVA, "live", *arguments, "--journal", str(tmp_path / "j")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(100)]
    os.kill(process.pid, signal.SIGKILL)
    told += process.communicate()[0].splitlines(keepends=True)
    told = [line for line in told if line.endswith(b"\n")]
    assert 100 <= len(told) < 2000
    rest = nova("live", *arguments, "--journal", tmp_path / "j", "--skip-seen")
    whole = nova("live", *arguments)
    resumed, expected = rest.stdout.splitlines(), whole.stdout.splitlines()
    # What was on disk but not told yet, one event at most, is not told again.
    assert [line.decode().rstrip() for line in told] == expected[: len(told)]
    assert len(told) + len(resumed) in (2000, 1999)
    assert resumed == expected[-len(resumed) :]
    again = nova("live", *arguments, "--journal", tmp_path / "j2")
    assert again.exit_code == whole.exit_code == rest.exit_code
    ended, other = (Journal.resume(tmp_path / name).live for name in ("j", "j2"))
    assert ended.plan().same_as(other.plan())
    assert free_capacity(ended) == free_capacity(other)


def test_replan_writes_the_plan_after_the_events(
    nova, ask, problem: Path, plan: Path, events: Path, tmp_path: Path
) -> None:
    new, changed = tmp_path / "new.json", tmp_path / "changed.yaml"
    answer = ask("replan", problem, plan, events, "-o", new, "--problem-output", changed)
    assert answer["events"] == len(EVENTS)
    assert answer["counts"]["added"] == 1
    asked = read_problem(changed)
    assert "A" not in asked.node_index
    assert read_plan(new, asked).notes == {"version": len(EVENTS)}
    assert nova("check", new, "-p", changed).exit_code == 0
    told = nova("replan", problem, plan, events, "-o", new, "--rebalance", "5")
    assert told.exit_code == 0, told.output
    assert f"{len(EVENTS)} events: " in told.stdout
    assert "mean latency" in told.stdout
    assert "--problem-output" in told.stderr


def test_no_event_changes_no_decision(ask, nova, problem: Path, plan: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_text("")
    answer = ask("replan", problem, plan, nothing, "-o", tmp_path / "same.json")
    assert answer["counts"] == {}
    assert nova("diff", plan, tmp_path / "same.json", "-p", problem).exit_code == 0


def test_bad_input_is_refused(refused, problem: Path, plan: Path, tmp_path: Path) -> None:
    events, out = tmp_path / "e.jsonl", tmp_path / "out.json"
    events.write_text('{"event": "change-rate", "source": "n1", "rate": 24}\n{"event": "nix"}\n')
    assert f"{events}: line 2: event: 'nix' is none" in refused(
        "replan", problem, plan, events, "-o", out
    )
    events.write_text('{"event": "change-capacity", "node": "sink", "capacity": 1}\n')
    assert "tuples/s are missing" in refused("replan", problem, plan, events, "-o", out)
    assert "cannot be read" in refused("replan", problem, plan, tmp_path / "nix", "-o", out)
    assert "no directory" in refused("replan", problem, plan, events, "-o", tmp_path / "a/b.json")
    assert "cannot be read" in refused("live", problem, plan, "--events", tmp_path / "nix")
    assert "--skip-seen" in refused("live", problem, plan, "--events", events, "--skip-seen")
    assert "unknown operator 'nix'" in refused(
        "live", problem, plan, "--events", events, "--pin", "nix"
    )
    assert "relays" in refused("replan", problem, tree(problem, tmp_path), events, "-o", out)


def tree(problem: Path, tmp_path: Path) -> Path:
    path = tmp_path / "tree.json"
    write_plan(place(read_problem(problem), "tree"), path)
    return path
