"""Who may import whom, and what `import nova_core` must not bring in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

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
        CORE | {"nova_engines.flow", "nova_engines.sources", "nova_engines.results"},
    ),
    "nova_testbed": (
        "testbed/nova_testbed",
        {
            f"nova_core.{name}"
            for name in (
                *("model", "io", "errors", "extras", "console", "numbers", "paths", "programs"),
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


@cache
def imports_of(file: Path) -> tuple[str, ...]:
    """Every module a file imports, also inside functions and for type checking only."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            # `from nova_core import model` is an import of nova_core.model.
            found += (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith(("import_module", "__import__"))
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            found.append(str(node.args[0].value))
    return tuple(found)


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


def test_the_product_names_no_module_of_research() -> None:
    """Not in text either, such as a name that is put together and imported when it is used."""
    suffixes = {".py", ".yaml", ".json", ".toml", ".sql", ".j2", ".java", ".scala"}
    files = [file for name in set(ALLOWED) - RESEARCH for file in texts_of(name, suffixes)]
    assert len(files) > 400
    assert [file for file in files if "nova_research" in file.read_text()] == []
    added = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert "nova_research" not in str(added)


def texts_of(package: str, suffixes: set[str]) -> list[Path]:
    return [file for file in (ROOT / ALLOWED[package][0]).rglob("*") if file.suffix in suffixes]


# Imports that close a circle of modules and stay: who imports whom, and why.
CIRCLES = {
    ("nova_flink.home", "nova_flink.class_data"): (
        "a home is complete when a job has run in it, whose classes are archived"
    ),
    ("nova_testbed.inventory", "nova_testbed.inventory_document"): (
        "`read_inventory` is where an inventory is; the format is loaded when one is read"
    ),
    (
        "nova_testbed.jobs",
        "nova_testbed.host",
    ): "for its type: methods of `Host`, in a file of theirs",
    ("nova_testbed.transfer", "nova_testbed.host"): "likewise",
}
Graph = Mapping[str, set[str]]


def module_graph() -> Graph:
    """The modules that each of our modules imports."""
    files = {}
    for package in ALLOWED:
        above = (ROOT / ALLOWED[package][0]).parent
        for file in files_of(package):
            parts = file.relative_to(above).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file

    def module(name: str) -> str:
        # An import may end with a name that the module defines.
        return name if name in files else name.rpartition(".")[0]

    return {
        one: {module(name) for name in imports_of(file)} & set(files) - {one}
        for one, file in files.items()
    }


def circular(graph: Graph) -> set[tuple[str, str]]:
    """Imports that are part of a circle: from both their ends, the other one is reached."""
    row = {name: number for number, name in enumerate(graph)}
    edges = [(one, other) for one, others in graph.items() for other in others]
    ends = [[row[edge[side]] for edge in edges] for side in (0, 1)]
    matrix = csr_array(([1] * len(edges), ends), shape=(len(row), len(row)))
    _, component = connected_components(matrix, directed=True, connection="strong")
    return {edge for edge, a, b in zip(edges, *ends, strict=True) if component[a] == component[b]}


def without(graph: Graph, imports: set[tuple[str, str]]) -> Graph:
    return {one: {x for x in others if (one, x) not in imports} for one, others in graph.items()}


def test_no_circles_of_modules() -> None:
    """Imports inside functions and for types count: who reads one module must read all of them."""
    assert circular(without(module_graph(), set(CIRCLES))) == set()


@pytest.mark.parametrize("edge", CIRCLES, ids="->".join)
def test_a_circle_that_stays_is_there(edge: tuple[str, str]) -> None:
    """When it has ended, it must be named no longer."""
    graph = without(module_graph(), set(CIRCLES) - {edge})
    assert edge in circular(graph)


def test_circles_are_noticed() -> None:
    graph = {"a": {"b"}, "b": {"c", "e"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}
    assert circular(graph) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert circular(without(graph, {("c", "a")})) == set()
    # Imports in functions, for types, and of a name that a module defines.
    graph = module_graph()
    assert "nova_core.costspace.automatic" in graph["nova_core.io.assembly"]
    assert "nova_testbed.host" in graph["nova_testbed.jobs"]
    assert "nova_core.model.problem" in graph["nova_core.model.plan"]


# Folder of nova_core: which others it may import. Modules beside the folders may import all.
INSIDE = {
    "model": set(),
    "io": {"model"},
    "costspace": {"model", "io"},
    "placement": {"model", "io"},
    "evaluation": {"model", "placement"},
    "strategies": {"model", "placement", "evaluation"},
    "plotting": {"model", "io", "costspace"},
    "service": {"model", "io", "placement", "strategies"},
    "commands": {
        "model",
        "io",
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
    ("io", "nova_core.costspace.automatic"),
    ("placement", "nova_core.strategies.nova_parameters"),
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
    found = imports_of(file)
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
