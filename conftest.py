"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from nova_core.scratch import run_folder

# How long an example takes is the machine's affair.
settings.register_profile("nova", deadline=None)
settings.load_profile("nova")

ROOT = Path(__file__).resolve().parent


# What else than a file stays on one worker.
TOGETHER = (
    # They name things on this machine, and so must not run side by side.
    ("tests/nova_testbed/",),
    # They share a session of Spark, which takes long to start.
    (
        "tests/nova_workloads/test_spark_pipeline.py",
        "tests/nova_workloads/test_latency_pipeline.py",
        "tests/nova_workloads/test_regions.py",
    ),
)
# What takes longest begins first, so that no worker is left with it while the others are done.
SLOW = (
    "tests/nova_harness/test_experiment_",
    "research/nova_research/nova/tests/",
    "research/nova_research/sbon/tests/test_sbon_figure.py",
    "research/nova_research/costream/tests/test_costream_figure.py",
    "tests/nova_workloads/test_spark_pipeline.py",
)
# What loads jax, whose threads do not go with tests that fork, is last on its worker.
LAST = (
    "research/nova_research/costream/tests/test_network.py",
    "research/nova_research/costream/tests/test_costream_figure.py",
    "research/nova_research/costream/tests/test_learning.py",
)
# End-to-end tests that share an engine, a session of Spark or the test bed stay on one worker; so
# do those on slow hosts, and those of engines besides Flink: two lanes of these on two cores made
# engines late. A lane begins as a worker is free, in this order; then come other files.
LANES = (
    ("tests/nova_harness/test_experiment_", "tests/nova_harness/test_cluster_commands_e2e.py"),
    ("tests/nova_workloads/test_scale_e2e.py", "tests/nova_workloads/test_scale_plan.py"),
    ("tests/nova_flink/",),
    ("tests/nova_testbed/",),
    ("tests/nova_workloads/test_spark_pipeline_e2e.py",),
    ("tests/fuzz/",),
    ("tests/nova_kafka/", "tests/nova_spark/", "tests/nova_storm/"),
)

# Tests run what is compiled, and leave no process in the background.
os.environ.setdefault("NOVA_KERNELS", "compile")
# To compile what is trained well takes longer than tests train it.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Nor do sessions of Spark last.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
# Workers of pytest-xdist are told of a terminal 80 columns wide.
os.environ.pop("COLUMNS", None)
# What scripts run in the background ignores Ctrl-C, and so would all programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What these run, other tests run as well; they do it for hundreds of inputs or at hundreds of
# steps, as tests of hypothesis do. To note which lines run takes them much longer.
NOT_COUNTED = (
    "tests/golden/",
    "tests/nova_core/placement/test_live_index.py",
    "tests/nova_core/placement/test_live_random.py",
    "tests/nova_core/placement/test_nova.py",
    "tests/nova_core/service/test_service_fuzz.py",
    "tests/nova_core/strategies/test_every_strategy.py",
    "research/nova_research/whitewater/tests/test_whitewater_search.py",
    "tests/nova_engines/test_handover_faults.py",
    "tests/nova_harness/test_control_faults.py",
)


# Temporary files of tests, and of what they start and end in the middle of something, go with them.
# The last runs' `tmp_path` stay where pytest keeps them.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
run_folder()


def is_e2e(config: pytest.Config) -> bool:
    """Whether only end-to-end tests are run."""
    return bool(config.getoption("markexpr") == "e2e")


def scope_of(config: pytest.Config, nodeid: str) -> str:
    """What stays on one worker: a lane of end-to-end tests, else a file, or a page of examples."""
    if is_e2e(config):
        lanes = (names[0] for names in LANES if nodeid.startswith(names))
        return next(lanes, nodeid.partition("::")[0])
    if nodeid.startswith("tests/house/test_docs.py::test_examples_work["):
        return nodeid
    together = (names[0] for names in TOGETHER if nodeid.startswith(names))
    return next(together, nodeid.partition("::")[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what coverage leaves out; on a worker: by scope, slow ones first, then large ones."""
    for item in items:
        if item.nodeid.startswith(NOT_COUNTED) or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("no_cover")
    if not hasattr(config, "workerinput"):
        return
    scope = {item.nodeid: scope_of(config, item.nodeid) for item in items}
    size = Counter(scope.values())
    first = [names[0] for names in LANES] if is_e2e(config) else []
    order = {
        name: (
            name in LAST,
            first.index(name) if name in first else len(first),
            not name.startswith(SLOW),
            -count,
            number,
        )
        for number, (name, count) in enumerate(size.items())
    }
    items.sort(key=lambda item: order[scope[item.nodeid]])


def pytest_collection_finish() -> None:
    """Python looks no more for garbage among all that tests have imported, which stays."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers, what belongs together stays on one, in the order of the collection."""
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(config, nodeid)

        def remove_node(self, node: Any) -> str | None:
            """Hand on what a worker leaves, but the test that ended it: it would end the next."""
            left = self.assigned_work.pop(node)
            open_ones = [
                (unit, test) for unit in left.values() for test, done in unit.items() if not done
            ]
            if not open_ones:
                return None
            unit, crashed = open_ones[0]
            unit[crashed] = True
            self.workqueue.update(
                {scope: unit for scope, unit in left.items() if not all(unit.values())}
            )
            for other in self.nodes:
                self._reschedule(other)
            return crashed

        def _reschedule(self, node: Any) -> None:
            # One that replaces another is here before it has said which tests there are.
            if node in self.registered_collections:
                super()._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            # One that has just ended takes nothing: `remove_node` will hand this on.
            with suppress(OSError):
                super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return ByScope(config, log)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of shared measurements beside the repository; absent on most machines."""
    directory = ROOT.parent / "shared" / "data"
    if not (directory / "README.md").is_file():
        pytest.skip(f"the shared measurement data is not here: no {directory}")
    return directory
