"""Children of the service, which end with it, however it ends.

As a program, `python -m nova_core.service.children PARENT ARGUMENTS...` is ``nova ARGUMENTS...``,
which gets SIGTERM when the process PARENT ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with(parent: int, how: signal.Signals) -> None:
    """Have this process get a signal when the thread that has started it ends.

    Args:
        parent: the process that has started it; when that has already ended, so does this one.
        how: the signal.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:
        sys.exit(1)


def _main() -> None:
    from nova_core.cli import main

    sys.argv[0] = "nova"
    end_with(int(sys.argv.pop(1)), signal.SIGTERM)
    main()


if __name__ == "__main__":
    _main()
