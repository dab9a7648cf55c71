"""What a plan costs, and how far it is from the optimum.

The solver is loaded when it runs, not when this package is imported.
"""

from nova_core.evaluation.bounds import lower_bound as lower_bound
from nova_core.evaluation.exact import Optimum as Optimum
from nova_core.evaluation.exact import exact_optimum as exact_optimum
from nova_core.evaluation.exact import exact_optimum_with_cuts as exact_optimum_with_cuts
from nova_core.evaluation.metrics import Evaluation as Evaluation
from nova_core.evaluation.metrics import Latency as Latency
from nova_core.evaluation.metrics import Load as Load
from nova_core.evaluation.metrics import evaluate as evaluate
