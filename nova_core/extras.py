"""Extras of our distributions: packages that only parts of Nova need.

``pip install .`` leaves them out. The distributions' metadata says which extra installs what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nova_core.errors import NovaError

DISTRIBUTION = "nova-placement"
RESEARCH = "nova-research"
# Modules that are not named like the package that brings them.
_PACKAGES = {"kafka": "kafka-python", "py4j": "pyspark", "uvloop": "uvicorn"}
_REQUIREMENT = re.compile(r"([\w.-]+).*\bextra\s*==\s*['\"]([\w.-]+)['\"]")


class MissingExtraError(NovaError):
    """A module that an extra would install is missing."""


def extra_of(module: str) -> str | None:
    """The smallest extra that brings a module, as pip names it; None where no extra does."""
    from importlib.metadata import PackageNotFoundError, requires

    top = module.partition(".")[0]
    package = _PACKAGES.get(top, top.replace("_", "-"))
    packages: dict[str, set[str]] = {}
    for distribution in (DISTRIBUTION, RESEARCH):
        with suppress(PackageNotFoundError):
            for match in filter(None, map(_REQUIREMENT.match, requires(distribution) or [])):
                brought = packages.setdefault(f"{distribution}[{match[2]}]", set())
                brought.add(match[1].lower().replace("_", "-"))
    extras = [name for name, brought in packages.items() if package in brought]
    return min(extras, key=lambda name: (len(packages[name]), name), default=None)


def install_command(extra: str) -> str:
    """The command that installs an extra of the product."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing(what: str, error: Exception) -> str:
    """The line for a failed import; empty where no extra would have brought a missing module.

    Args:
        what: needs the module.
        error: that the import raised.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    extra = extra_of(error.name)
    module = error.name.partition(".")[0]
    return f"{what}: needs the module {module}; pip install '{extra}'" if extra else ""


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Context for imports of modules that an extra brings.

    The command line says the same of any such import. This is for functions that others call, too,
    and for texts that name more than the command.

    Raises:
        MissingExtraError: naming ``what`` and the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if text := missing(what, error):
            raise MissingExtraError(text) from error
        raise
