"""Who may import whom, and what `import nova_core` must not bring in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from nova_core.extras import extra_of

ROOT = Path(__file__).resolve().parents[2]
CORE = {"nova_core"}
ADAPTERS = {
    "nova_engines",
    "nova_flink",
    "nova_kafka",
    "nova_nebulastream",
    "nova_spark",
    "nova_storm",
}
RESEARCH = {"nova_research"}
ALL = CORE | ADAPTERS | RESEARCH | {"nova_workloads", "nova_testbed", "nova_harness"}

# What adapters share.
SHARED = {"nova_engines"}

# Package: its directory and which of our other modules it may import.
ALLOWED: dict[str, tuple[str, set[str]]] = {
    "nova_core": ("nova_core", set()),
    **{name: (f"adapters/{name}", CORE | SHARED) for name in ADAPTERS},
    "nova_engines": ("adapters/nova_engines", CORE),
    # Jobs that are written out name the connector's jar, or bring the client's.
    "nova_flink": ("adapters/nova_flink", CORE | SHARED | {"nova_kafka.home"}),
    "nova_spark": ("adapters/nova_spark", CORE | SHARED | {"nova_kafka.home"}),
    # What flows in an experiment is handed on to an engine.
    "nova_workloads": (
        "workloads/nova_workloads",
        CORE | {"nova_engines.workload", "nova_engines.query_flow", "nova_engines.query_results"},
    ),
    "nova_testbed": (
        "testbed/nova_testbed",
        {
            f"nova_core.{name}"
            for name in (
                *("model", "errors", "extras", "console", "numbers", "paths", "programs"),
                *("commands.shared", "lazy_commands", "scratch", "suggestions", "user_cache"),
            )
        }
        | {"nova_workloads.debs"},
    ),
    "nova_harness": ("harness/nova_harness", ALL - RESEARCH),
    "nova_research": ("research/nova_research", ALL),
}
HEAVY = (
    "numba",
    "scipy",
    "sklearn",
    "pyarrow",
    "matplotlib",
    "rich",
    "paramiko",
    "pandas",
    "pyspark",
    "kafka",
    "jax",
    "lightgbm",
)


def imports_of(file: Path) -> Iterator[str]:
    """Every module a file imports, also inside functions and for type checking only."""
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            # `from nova_core import model` is an import of nova_core.model.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith(("import_module", "__import__"))
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def within(module: str, packages: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in packages)


def forbidden(package: str, module: str) -> bool:
    return within(module, ALL) and not within(module, ALLOWED[package][1] | {package})


def files_of(package: str) -> list[Path]:
    """Its modules; papers have their tests among them."""
    files = (ROOT / ALLOWED[package][0]).rglob("*.py")
    return sorted(file for file in files if "tests" not in file.relative_to(ROOT).parts)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_go_one_way(package: str) -> None:
    """Research, above all, is imported by nothing else."""
    files = files_of(package)
    assert files
    wrong = [f"{f}: {m}" for f in files for m in imports_of(f) if forbidden(package, m)]
    assert not wrong


# Folder of nova_core: which others it may import. Modules beside the folders may import all.
INSIDE = {
    "model": set(),
    "costspace": {"model"},
    "placement": {"model"},
    "queries": {"model", "placement"},
    "evaluation": {"model", "placement"},
    "strategies": {"model", "placement", "queries", "evaluation"},
    "plotting": {"model", "costspace"},
    "service": {"model", "placement", "strategies"},
    "commands": {
        "model",
        "costspace",
        "placement",
        "strategies",
        "evaluation",
        "plotting",
        "service",
    },
}
# Inside functions: what a reader of problems, a strategy's parameters, and a node that comes with
# measurements need of one above.
EXCEPTIONS = {
    ("model", "nova_core.costspace.automatic"),
    ("queries", "nova_core.strategies.nova_parameters"),
    ("placement", "nova_core.costspace.incremental"),
}


def test_folders_of_the_core_import_one_way() -> None:
    core = ROOT / "nova_core"
    folders = {path.parent.name for path in core.glob("*/__init__.py")}
    assert folders == set(INSIDE)
    wrong = []
    for file in sorted(core.glob("*/**/*.py")):
        folder = file.relative_to(core).parts[0]
        for module in imports_of(file):
            other = module.removeprefix("nova_core.").partition(".")[0]
            allowed = other in INSIDE[folder] | {folder} or other not in folders
            excepted = any(within(module, {name}) for own, name in EXCEPTIONS if own == folder)
            if module.startswith("nova_core.") and not allowed and not excepted:
                wrong.append(f"{file}: {module}")
    assert not wrong


def test_the_core_is_tested_without_what_is_built_on_it() -> None:
    """Its tests take problems and events at random from the workloads, and no more."""
    allowed = {"topology", "live_events"}
    modules = CORE | {f"nova_workloads.{name}" for name in allowed}
    files = sorted((ROOT / "tests" / "nova_core").rglob("*.py"))
    wrong = [
        f"{f}: {m}"
        for f in files
        for m in imports_of(f)
        if within(m, ALL) and not within(m, modules)
    ]
    assert not wrong


def test_the_rule_notices_every_kind_of_import(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "import nova_harness.bench\n"
        "def f():\n"
        "    from nova_flink import x\n"
        "    import_module('nova_spark')\n"
        "if TYPE_CHECKING:\n"
        "    from nova_research.sbon import mapping\n"
        "from nova_core import errors, model\n"
    )
    found = list(imports_of(file))
    assert [m for m in found if forbidden("nova_core", m)] == [
        "nova_harness.bench",
        "nova_flink.x",
        "nova_research.sbon.mapping",
        "nova_spark",
    ]
    assert [m for m in found if forbidden("nova_testbed", m)] == [
        "nova_harness.bench",
        "nova_flink.x",
        "nova_research.sbon.mapping",
        "nova_spark",
    ]
    product = set(ALLOWED) - RESEARCH
    assert all(forbidden(package, "nova_research.sbon.mapping") for package in product)


def test_every_package_is_here_and_installed() -> None:
    """A new package must be named in this test, and in pyproject.toml."""
    found = {
        p.parent.name: p.parent
        for p in ROOT.glob("**/nova_*/__init__.py")
        if ".venv" not in p.parts and "tests" not in p.parts
    }
    assert set(found) == set(ALLOWED)
    for name, directory in found.items():
        assert directory == ROOT / ALLOWED[name][0]
        assert find_spec(name) is not None, f"{name} cannot be imported"


def modules_after(code: str) -> set[str]:
    """Top-level modules that are loaded when a fresh interpreter has run some code."""
    told = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {name.partition(".")[0] for name in told.stdout.split()}


def test_nothing_is_used_that_only_developers_have() -> None:
    """What our packages import comes with Nova or one of its extras for users."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {re.split(r"[\[<>=]", one)[0].lower() for one in told["dependencies"]}
    # Flink has an environment of its own; llvmlite comes with numba; _typeshed is mypy's.
    known |= {"pyflink", "llvmlite", "-typeshed"}
    named = {"sklearn": "scikit-learn", "yaml": "pyyaml"}
    wrong = set()
    for package in ALLOWED:
        for file in files_of(package):
            for module in imports_of(file):
                top = module.partition(".")[0]
                name = named.get(top, top).replace("_", "-").lower()
                if top in sys.stdlib_module_names or top in ALL or name in known:
                    continue
                if extra_of(top) in (None, "nova-placement[dev]"):
                    wrong.add(f"{file.relative_to(ROOT)}: {top}")
    assert not wrong


def test_importing_nova_core_brings_in_nothing_heavy() -> None:
    loaded = modules_after("import nova_core")
    assert "nova_core" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_help_brings_in_nothing_heavy() -> None:
    code = """
import contextlib, io
from nova_core.cli import cli
with contextlib.redirect_stdout(io.StringIO()):
    for words in ([], ["query"], ["bench"]):
        cli([*words, "--help"], standalone_mode=False)
"""
    loaded = modules_after(code)
    assert {"nova_core", "click", "nova_workloads", "nova_harness", "nova_research"} <= loaded
    assert loaded.isdisjoint((*HEAVY, "numpy"))
