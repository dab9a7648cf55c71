"""The problem, the plan, and the files both are kept in."""

from __future__ import annotations

from nova_core.model.files import read_plan, read_problem, write_plan, write_problem
from nova_core.model.plan import Instances, Partitions, Plan, Routes
from nova_core.model.problem import (
    JoinMatrix,
    Joins,
    Links,
    Nodes,
    PairLatencies,
    Problem,
    Sources,
)

__all__ = [
    "Instances",
    "JoinMatrix",
    "Joins",
    "Links",
    "Nodes",
    "PairLatencies",
    "Partitions",
    "Plan",
    "Problem",
    "Routes",
    "Sources",
    "read_plan",
    "read_problem",
    "write_plan",
    "write_problem",
]
