"""The process of `privileges.as_root` that has root's rights."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nova_core.errors import NovaError
from nova_testbed.inventory import Inventory
from nova_testbed.rack.cleanup import clean
from nova_testbed.rack.rack import VirtualRack
from nova_testbed.rack.state import Emulation


def _of_rack(method: str) -> Callable[..., Any]:
    def call(
        inventory: Inventory,
        state_dir: Path,
        emulation: Emulation | None = None,
        **arguments: Any,
    ) -> Any:
        rack = VirtualRack(inventory, state_dir, emulation=emulation)
        return getattr(rack, method)(**arguments)

    return call


ORDERS: dict[str, Callable[..., Any]] = {
    "clean": clean,
    **{
        method: _of_rack(method)
        for method in (
            "up",
            "down",
            "status",
            "set_links",
            "set_limits",
            "restart_switch",
            "kill_host",
        )
    },
}


def main() -> None:
    """Execute one order."""
    answers = sys.stdout.buffer

    def tell(kind: str, value: object) -> None:
        pickle.dump((kind, value), answers)
        answers.flush()

    order, arguments = pickle.load(sys.stdin.buffer)
    if order == "up":
        arguments["progress"] = lambda *step: tell("progress", step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            answer = ("result", ORDERS[order](**arguments))
        except NovaError as error:
            answer = ("error", str(error))
        except (KeyboardInterrupt, BrokenPipeError):
            # The calling process was interrupted or has ended; `up` has cleaned up.
            os._exit(130)
    for warning in caught:
        tell("warning", str(warning.message))
    tell(*answer)


if __name__ == "__main__":
    main()
