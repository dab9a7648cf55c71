"""What a plan costs, and how far it is from the best there is.

The solver is loaded by what runs it, not by importing this package.
"""

from nova_core.evaluation.bounds import lower_bound
from nova_core.evaluation.exact import Optimum, exact_optimum, exact_optimum_with_cuts
from nova_core.evaluation.metrics import Evaluation, Latency, Load, evaluate

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
