"""Kernels: loops that numba compiles, kept on disk, and run as plain Python until they are there.

Numba needs most of a minute for the kernels of one placement. As Python, the same code places a
small problem in a second, with the same result to the last bit. So with nothing compiled yet, what
is small runs as Python, and a process in the background compiles (`nova_core.compile_kernels`).
``NOVA_KERNELS=compile`` always compiles first and starts no process; ``NOVA_KERNELS=interpret``
compiles nothing but what cannot run as Python: live placement and whole queries.

A cache holds one state of all kernel sources of a package: numba checks one file at a time, so a
kernel that calls an edited one in another file would still run the old code. It is the user's, for
all installations that have these sources: a new environment need not compile them again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from nova_core.errors import NovaError
from nova_core.user_cache import user_cache

F = TypeVar("F", bound=Callable[..., Any])

# Nodes and joins of a problem that is small: as Python it takes a second or two.
SMALL = 1500
SETTING = "NOVA_KERNELS"
FOR_NOW = "interpret, for now"
# What nobody has used for so long goes when something new is compiled.
UNUSED_S = 60 * 86_400.0


@dataclass(eq=False)
class Kernels:
    """The kernels of a package, plain functions to begin with.

    Attributes:
        package: its name.
        file: its ``__file__``.
        cache: where numba keeps them, or None where nothing can be written.
        state: of their sources, as a name.
        defined: each function with its options for numba.
        compiling: ``module:function`` that has all of them compiled; empty where they never run as
            plain Python.
        called: packages whose kernels they call; numba compiles these first.
        begun: whether this process has had them compiled in the background.
    """

    package: str
    file: str
    cache: Path | None
    state: str
    defined: list[tuple[FunctionType, dict[str, Any]]]
    compiling: str
    called: list[Kernels]
    begun: bool = False

    @property
    def compiled_mark(self) -> Path | None:
        """A file that names the compiler and the processor that all these are compiled for."""
        return self.cache and self.cache / f"compiled-{self.state}"

    def are_compiled(self) -> bool:
        """Whether another process has compiled them, for this compiler and processor."""
        mark = self.compiled_mark
        return mark is not None and mark.exists() and mark.read_text() == compiled_for()

    def use_numba(self, modules: Iterable[object]) -> None:
        """Put numba's functions, compiled when they are called, into modules for the plain ones."""
        numba = _load_numba()
        # Numba picks a kernel's cache when it is defined; other code keeps its own setting.
        settings = vars(numba.config)
        elsewhere = {name: settings[name] for name in ("CACHE_DIR", "CACHE_LOCATOR_CLASSES")}
        if self.cache is not None:
            settings["CACHE_DIR"] = str(self.cache)
            settings["CACHE_LOCATOR_CLASSES"] = "nova_core.kernel_locator.KernelLocator"
        try:
            instead = {
                id(plain): numba.njit(**options | {"cache": self.cache is not None})(plain)
                for plain, options in self.defined
            }
        finally:
            settings.update(elsewhere)
        for module in modules:
            if not isinstance(module, ModuleType):  # `typing` puts classes among them
                continue
            names = vars(module)
            found = [name for name, value in names.items() if id(value) in instead]
            names.update({name: instead[id(names[name])] for name in found})


# Of every kernel package that is imported, by name.
packages: dict[str, Kernels] = {}
_lock = threading.RLock()
# Kernels defined by packages that are being imported, and packages that are plain Python still.
_defined: list[tuple[FunctionType, dict[str, Any]]] = []
_plain: list[Kernels] = []
# How kernels run, as it was decided for the first problem; large ones change it to "compile".
_decided: str | None = None
_awaiting_numba: list[Callable[[], None]] = []
# Processes that were started; they are not waited for.
_compiling: list[object] = []


def njit(**options: Any) -> Callable[[F], F]:
    """As numba's: a kernel. `kernel_cache` and `prepare` decide whether it is compiled."""

    def keep(function: F) -> F:
        _defined.append((function, options))  # type: ignore[arg-type]
        return function

    return keep


@contextmanager
def kernel_cache(package: str, *called: str, plain: str = "") -> Iterator[None]:
    """Import the kernels of a package inside; they are cached for the user, or beside it.

    Args:
        package: the ``__file__`` of the kernels' ``__init__``; all ``*.py`` beside it count.
        called: a ``__file__`` of each other package whose kernels they call.
        plain: ``module:function`` that has all of them compiled, where until then they may run as
            plain Python, with the same results.
    """
    below = {Path(each).parent for each in called}
    if called and not plain:
        compile_first()
        with _lock:
            # Also where nothing is to be compiled: what is compiled can call nothing else.
            for one in [one for one in _plain if Path(one.file).parent in below]:
                _compile(one)
    yield
    here = Path(package).parent
    mine = [one for one in _defined if Path(one[0].__code__.co_filename).parent == here]
    name = mine[0][0].__module__.rpartition(".")[0]
    sources = [Path(__file__).with_name("borrowing.py")]
    for each in (package, *called):
        sources += sorted(Path(each).parent.glob("*.py"))
    # Of other compilers, the user's other installations may have their own.
    compiler = f"{version('numba')} {sys.implementation.cache_tag}".encode()
    state = b"".join([compiler, *(source.read_bytes() for source in sources)])
    digest = hashlib.blake2b(state, digest_size=8).hexdigest()
    cache = _place(here / "__pycache__", digest)
    calls = [one for one in packages.values() if Path(one.file).parent in below]
    kernels = Kernels(name, package, cache, digest, mine, plain, calls)
    with _lock:
        _defined[:] = [one for one in _defined if one not in mine]
        packages[name] = kernels
        if plain and (_decided or _setting()) in ("interpret", FOR_NOW) and not _ready(kernels):
            _plain.append(kernels)
            _in_background(kernels)
            return
        inside = [m for path, m in sys.modules.items() if path.startswith(f"{name}.")]
        kernels.use_numba(inside)


def prepare(size: int) -> None:
    """Decide how kernels run from here on; who runs them on a problem calls this first.

    Args:
        size: nodes and joins, or operators, of the problem.
    """
    global _decided
    if _decided == "compile" or (_decided and not _plain and size <= SMALL):
        return
    with _lock:
        _decided = _setting() or (FOR_NOW if size <= SMALL else "compile")
        for kernels in _plain.copy():
            if _decided == "compile" or _ready(kernels):
                _compile(kernels)
            else:
                _in_background(kernels)


def _compile(kernels: Kernels) -> None:
    """Have kernels compiled that are plain Python still; the lock is held."""
    _plain.remove(kernels)
    kernels.use_numba(list(sys.modules.values()))


def compile_first() -> None:
    """Run no kernels as plain Python from here on: for who measures times."""
    prepare(sys.maxsize)


def when_numba_is_there(do: Callable[[], None]) -> None:
    """Call ``do`` now, or when kernels load numba, which takes half a second."""
    if "numba" in sys.modules:
        do()
    else:
        _awaiting_numba.append(do)


def compiled_for() -> str:
    """Names the compiler and the processor."""
    numba = _load_numba()
    from llvmlite import binding

    processor = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    return f"numba {numba.__version__} {sys.version} {processor}"


def _setting() -> str:
    setting = os.environ.get(SETTING, "")
    if setting not in ("", "compile", "interpret"):
        raise NovaError(f"{SETTING} is {setting!r}; expected compile, interpret or nothing")
    return setting


def _ready(kernels: Kernels) -> bool:
    below = all(one not in _plain for one in kernels.called)
    return _setting() != "interpret" and below and kernels.are_compiled()


def _in_background(kernels: Kernels) -> None:
    """Compile them in a process of their own, unless that was tried or somebody forbids it."""
    below = all(one.are_compiled() for one in kernels.called)
    if not kernels.begun and below and _setting() != "interpret":
        kernels.begun = True
        _start(kernels)


def _start(kernels: Kernels) -> None:
    """Have a package's kernels compiled in the background, where the cache can be written."""
    import subprocess

    cache, python = kernels.cache, sys.executable or ""
    # A program that has Python inside is no Python.
    if cache is None or "python" not in Path(python).name:
        return
    # Not the current directory, where programs put anything.
    modules = [path for path in sys.path if path and Path(path).is_absolute()]
    log = cache / f"{kernels.package}.log"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size:
            return
        with log.open("ab") as output:
            _compiling.append(
                subprocess.Popen(
                    [
                        *(python, "-P", "-W", "ignore", "-m", "nova_core.compile_kernels"),
                        *(kernels.package, kernels.compiling, str(cache)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    env=os.environ | {SETTING: "compile", "PYTHONPATH": os.pathsep.join(modules)},
                    start_new_session=True,
                )
            )


def _place(beside: Path, digest: str) -> Path | None:
    """A directory to write to: in the user's cache, or beside the sources."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    bases: tuple[Callable[[], Path], ...] = (user_cache, lambda: beside)
    for base in bases:
        with suppress(OSError, RuntimeError):  # there may be no home
            place = base() / f"kernels-{digest}"
            if not place.exists():
                place.mkdir(parents=True, exist_ok=True)  # others may begin now, too
                _remove_unused(place.parent)
            if os.access(place, os.W_OK):
                os.utime(place)  # it is used
                return place
    return None


def _remove_unused(base: Path) -> None:
    """Remove kernels of sources that no installation has had for long."""
    for place in base.glob("kernels-*"):
        with suppress(FileNotFoundError):  # another process may have removed it
            if time.time() - place.stat().st_mtime > UNUSED_S:
                shutil.rmtree(place, ignore_errors=True)


def _load_numba() -> Any:
    import numba

    while _awaiting_numba:
        _awaiting_numba.pop()()
    return numba
