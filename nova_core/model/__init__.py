"""The problem, the plan, and the files both are kept in."""

from __future__ import annotations

from nova_core.model.partitions import Instances as Instances
from nova_core.model.partitions import Partitions as Partitions
from nova_core.model.plan import Plan as Plan
from nova_core.model.plan import Routes as Routes
from nova_core.model.problem import JoinMatrix as JoinMatrix
from nova_core.model.problem import Joins as Joins
from nova_core.model.problem import Links as Links
from nova_core.model.problem import Nodes as Nodes
from nova_core.model.problem import PairLatencies as PairLatencies
from nova_core.model.problem import Problem as Problem
from nova_core.model.problem import Sources as Sources
