from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from nova_harness.commands.experiment import experiment, read, succeeded
from nova_harness.control.disturbances import Disturbance
from nova_harness.experiment.cells import (
    cells_of,
    same_experiment,
)
from nova_harness.experiment.document import (
    Experiment,
    ExperimentError,
    find_experiment,
    read_experiment,
)
from nova_harness.results.run_folder import CellFolder
from nova_harness.results.schema import Verification
from nova_workloads.comparison import Comparison

SMALL = "experiment: 1\nname: small\nstrategies: [nova, sink]\n"
KILL = "disturbances: [{at: 1, what: kill, host: worker1}]"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["debs2021", "debs2021-ci"])
def test_experiments_that_come_with_nova_can_be_read(name: str) -> None:
    found = read_experiment(find_experiment(name))
    assert found.name == name
    assert {"nova", "sink", "source", "tree", "top-c"} <= {s.called for s in found.chosen}
    traffic = found.workload_in().traffic
    assert all(traffic(w, 1000).keys == w for w in found.windows_ms)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("strategies: []", "strategies"),
        ("strategies: [nowhere]", "unknown 'nowhere'"),
        ("strategies: [{name: nova, parameters: {sgma: 1}}]", "unknown parameter 'sgma'"),
        ("strategies: [nova, nova]", "given twice"),
        ("strategies: [{name: nova, label: A B}]", "label 'A B'"),
        ("strategies: [nova]\nwindows_ms: [0]", "windows_ms[0]: 0 is not accepted"),
        ("strategies: [nova]\nwindows_ms: [5, 5]", "value twice"),
        ("strategies: [nova]\nrates: [-1]", "rates[0]: -1 is not accepted"),
        ("strategies: [nova]\nrates: [1, 2]\nload: 1.2", "[1.0, 2.0]: with load there is one"),
        ("strategies: [nova]\nduration_s: .nan", "duration_s"),
        ("strategies: [nova]\nstress: often", "stress"),
        ("strategies: [nova]\nengine: heron", "engine: unknown 'heron'; there are flink"),
        ("strategies: [nova]\ntransport: mail", "transport: unknown 'mail'; there are direct"),
        ("strategies: [nova]\nwindow_ms: [1]", "did you mean 'windows_ms'?"),
        ("strategies: [{name: nova, scheduled_by: me}]", "scheduled_by"),
        (
            "strategies: [{name: nova, scheduled_by: engine}]\nengine: storm",
            "scheduled_by: engine: only with engine flink",
        ),
        (
            "strategies: [nova]\nengine: spark\nsettings: {checkpoint_s: 1}",
            "checkpoint_s: only",
        ),
        (
            "strategies: [nova]\nengine: spark\nsettings: {miss_after_s: 5}",
            "miss_after_s: only with engine flink or storm",
        ),
        (
            "strategies: [nova, {name: nova, label: mine, scheduled_by: controller}]\n"
            "disturbances: [{at: 5, what: cut, host: worker1}]",
            "cut: the controller would notice it late or never; settings.miss_after_s says when",
        ),
        (f"strategies: [nova]\n{KILL}", "kill: would end the jobs of nova; settings.checkpoint_s"),
        (f"strategies: [nova]\nengine: spark\n{KILL}", "kill: only with engine flink or storm"),
        (
            "strategies: [{name: nova, scheduled_by: controller}]\nengine: spark",
            "controller: only with engine flink or storm",
        ),
    ],
)
def test_mistakes_are_told_with_the_field(tmp_path: Path, line: str, told: str) -> None:
    path = written(tmp_path, f"experiment: 1\nname: wrong\n{line}\n")
    with pytest.raises(ExperimentError) as caught:
        read_experiment(path)
    assert str(path) in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_killed_workers_need_a_controller_or_checkpoints(tmp_path: Path) -> None:
    controlled = "strategies: [{name: nova, scheduled_by: controller}]"
    for rest in (controlled, "strategies: [nova]\nsettings: {checkpoint_s: 5}"):
        text = f"experiment: 1\nname: right\n{rest}\n{KILL}\n"
        (event,) = read_experiment(written(tmp_path, text)).disturbances
        assert str(event) == "the worker on worker1 is killed"


def test_the_disturbed_experiment_has_a_plan_a_controller_and_the_engine_alone() -> None:
    found = read_experiment(find_experiment("disturbed"))
    by = {part.called: part.scheduled_by for part in found.chosen}
    assert by == {"controlled": "controller", "top-c": "plan", "engine-default": "engine"}
    assert [str(event) for event in found.disturbances] == ["the worker on near is killed, for 6 s"]


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(ExperimentError, match="no such file, nor an experiment"):
        find_experiment("debs1999")


def test_cells_are_all_there_in_an_order_that_the_seed_gives(tmp_path: Path) -> None:
    text = SMALL + "windows_ms: [1, 10]\nstress: both\nrepetitions: 2\nseed: 3\n"
    found = read_experiment(written(tmp_path, text))
    names = [cell.name for cell in cells_of(found)]
    assert len(set(names)) == len(names) == 2 * 2 * 2 * 2
    assert names == [cell.name for cell in cells_of(found)]
    other = msgspec.structs.replace(found, seed=4)
    assert names != [cell.name for cell in cells_of(other)]
    # Whole repetitions follow each other.
    assert {name[-1] for name in names[:8]} == {"1"}
    assert "nova-w10ms-r1000-stress-2" in names


def test_a_cell_says_what_is_expected_of_it(tmp_path: Path) -> None:
    found = read_experiment(written(tmp_path, SMALL + "windows_ms: [100]\nrates: [500]\n"))
    told = cells_of(found)[0].facts(found)
    assert told.keys == 50
    assert found.workload_in().traffic(100, 500).matches == 1


def test_a_cell_is_done_when_its_mark_is_there(tmp_path: Path) -> None:
    found = read_experiment(written(tmp_path, SMALL))
    cell = cells_of(found)[0]
    folder = cell.folder(tmp_path)
    folder.begin(cell.facts(found))
    folder.end("failed", "disk full")
    assert not folder.done
    assert CellFolder(folder.path).verdict.verdict == "disk full"
    folder.begin(cell.facts(found))  # what an unfinished run has left is gone
    assert [file.name for file in folder.path.iterdir()] == ["cell.json"]
    folder.finish()
    assert folder.done
    assert CellFolder(folder.path).facts == cell.facts(found)


def test_only_cells_may_differ_when_a_run_goes_on() -> None:
    a = Experiment(name="a", strategies=["nova"])
    more = Experiment(name="a", strategies=["nova", "sink"], windows_ms=[1], repetitions=3)
    assert same_experiment(a, more)
    assert not same_experiment(a, Experiment(name="a", strategies=["nova"], duration_s=5))


def test_the_command_lists_cells_and_takes_options(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    told = CliRunner().invoke(
        experiment, ["cells", str(path), "--strategy", "tree", "--window", "7", "--stress", "both"]
    )
    assert told.exit_code == 0, told.output
    shown = set(told.stdout.split())
    assert shown == {"tree-w7ms-r1000-calm-1", "tree-w7ms-r1000-stress-1"}
    # A rate that is given takes the place of one that would be found.
    path = written(tmp_path, SMALL + "load: 1.2\n")
    assert read(str(path), {})[0].load == 1.2
    assert read(str(path), {"rates": (70.0,)})[0].load is None


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    from nova_harness.experiment.runner import Run

    found = read_experiment(written(tmp_path, SMALL))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "holiday.jpg").write_text("")
    with pytest.raises(ExperimentError, match="holds no run"):
        Run(folder, found, tmp_path).prepare()
    other = tmp_path / "other"
    Run(other, found, tmp_path).prepare()
    Run(other, found, tmp_path).prepare()
    with pytest.raises(ExperimentError, match="holds another experiment"):
        Run(other, msgspec.structs.replace(found, duration_s=1), tmp_path).prepare()


def test_a_cell_that_could_not_be_run_is_no_success(tmp_path: Path) -> None:
    asked = read_experiment(written(tmp_path, SMALL))
    check = Comparison(expected=5, delivered=5)
    folders = [cell.folder(tmp_path) for cell in cells_of(asked)]
    for cell, folder in zip(cells_of(asked), folders, strict=True):
        folder.begin(cell.facts(asked))
        folder.write("check", check)
        folder.write("verification", Verification(ok=True))
    assert succeeded(asked, folders)
    assert not succeeded(asked, folders[:1])

    def with_check(folder: CellFolder, **counts: int) -> bool:
        folder.write("check", msgspec.structs.replace(check, **counts))
        return succeeded(asked, [CellFolder(one.path) for one in folders])

    assert not with_check(folders[1], lost=1)
    assert not with_check(folders[1], duplicated=1)
    # An engine that starts a killed job again may repeat results, and lose none.
    asked = msgspec.structs.replace(asked, disturbances=[Disturbance(1, "kill", "worker1")])
    assert with_check(folders[1], duplicated=1)
    assert not with_check(folders[1], lost=1)
    assert not with_check(folders[1], wrong=1)
    facts = msgspec.structs.replace(folders[1].facts, scheduled_by="controller")
    folders[1].write("cell", facts)
    assert not with_check(folders[1], duplicated=1)


def test_matches_of_less_than_one_in_a_tuple(tmp_path: Path) -> None:
    asked = read_experiment(
        written(
            tmp_path, SMALL + "workload: {kind: debs, matches: 0.1}\nwindows_ms: [1, 100, 15]\n"
        )
    )
    traffic = asked.workload_in().traffic
    assert traffic(15, 1000).every == 10
    # However short the windows, one in ten sequence numbers may match, and each but one other.
    assert [traffic(window, 1000).keys for window in (1, 15, 100)] == [10, 20, 100]
    assert traffic(100, 1000).matches == pytest.approx(0.1)


def test_all_pairs_of_a_window_match(tmp_path: Path) -> None:
    workload = "workload: {kind: debs, regions: 2, matches: all}\nwindows_ms: [1, 100]\n"
    asked = read_experiment(written(tmp_path, SMALL + workload)).workload_in()
    traffic = asked.traffic(100, 200)
    assert (traffic.keys, traffic.every, traffic.matches) == (1, 1, 20)
    problem = asked.problem(["a", "b", "c", "d"], "e", traffic)
    assert problem["query"]["operators"][0]["selectivity"] == 20
    at_once = read_experiment(find_experiment("debs2021-all-pairs"))
    assert at_once.workload_in().traffic(1000, 100).keys == 1
    with pytest.raises(ExperimentError, match="matches"):
        read_experiment(written(tmp_path, SMALL + workload.replace("all", "some")))
