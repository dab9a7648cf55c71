"""Where NebulaStream's programs are: a directory that the user names, or the PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nova_core.errors import NovaError

HOME = "NOVA_NES_HOME"
CLI, WORKER = "nes-cli", "nes-single-node-worker"
SOURCE = "https://github.com/nebulastream/nebulastream"


@dataclass(frozen=True)
class NesHome:
    """Programs that the user has built.

    Attributes:
        path: a directory with ``bin``, and what the programs need; None for the PATH.
    """

    path: Path | None

    @classmethod
    def default(cls) -> NesHome:
        """What the environment variable `HOME` names."""
        named = os.environ.get(HOME, "")
        return cls(Path(named).expanduser().absolute() if named else None)

    def program(self, name: str) -> Path:
        """Where a program is.

        Raises:
            NovaError: where it is not.
        """
        found = shutil.which(name) if self.path is None else str(self.path / "bin" / name)
        if found is None or not os.access(found, os.X_OK):
            where = "on the PATH" if self.path is None else f"in {self.path / 'bin'}"
            raise NovaError(
                f"nebulastream: no {name} {where}, and Nova cannot install it: build it from "
                f"{SOURCE}, and set {HOME} to a directory with bin/{CLI} and bin/{WORKER}; "
                "`nova translate` works without"
            )
        return Path(found)

    @property
    def complete(self) -> bool:
        """Whether its programs are there."""
        try:
            self.program(CLI), self.program(WORKER)
        except NovaError:
            return False
        return True

    def files(self) -> Sequence[Path]:
        """All that a host needs to run a worker."""
        if self.path is None:
            return [self.program(WORKER)]
        return sorted(one for one in self.path.rglob("*") if one.is_file())
