"""What a plan costs, and how far it is from the best there is.

Names are loaded on first use, so that importing this package does not load the solver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nova_core.evaluation.bounds import lower_bound
    from nova_core.evaluation.exact import Optimum, exact_optimum, exact_optimum_with_cuts
    from nova_core.evaluation.metrics import Evaluation, Latency, Load, evaluate

_HOMES = {
    "Evaluation": "metrics",
    "Latency": "metrics",
    "Load": "metrics",
    "Optimum": "exact",
    "evaluate": "metrics",
    "exact_optimum": "exact",
    "exact_optimum_with_cuts": "exact",
    "lower_bound": "bounds",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "Evaluation",
    "Latency",
    "Load",
    "Optimum",
    "evaluate",
    "exact_optimum",
    "exact_optimum_with_cuts",
    "lower_bound",
]
