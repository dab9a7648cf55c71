"""Small problems that come with the package."""

from __future__ import annotations

from importlib.resources import as_file, files

from nova_core.errors import ProblemError
from nova_core.model.problem import Problem

_SUFFIX = ".yaml"


def example_names() -> list[str]:
    """Names of the packaged problems."""
    entries = files(__name__).iterdir()
    return sorted(e.name.removesuffix(_SUFFIX) for e in entries if e.name.endswith(_SUFFIX))


def load_example(name: str) -> Problem:
    """A packaged problem by name, e.g. ``running-example``.

    Raises:
        ProblemError: for an unknown name.
    """
    from nova_core.io.files import read_problem

    if name not in example_names():
        raise ProblemError(f"example: unknown {name!r}; there are {', '.join(example_names())}")
    with as_file(files(__name__) / f"{name}{_SUFFIX}") as path:
        return read_problem(path)
