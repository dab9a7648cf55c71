"""Importing this loads kernels that many commands run, which takes a process half a second.

Examples of pages run in forks of a process that has done so, where kernels are compiled.
"""

from __future__ import annotations

import gc
import os

from nova_core.io.examples import load_example
from nova_core.strategies import names, place

if os.environ.get("NOVA_KERNELS") == "compile":
    for strategy in ("nova", "tree", "cl-sf", "sbon-optimal"):
        if strategy in names():
            place(load_example("running-example"), strategy)
# Forks need not look through what is here already.
gc.freeze()
