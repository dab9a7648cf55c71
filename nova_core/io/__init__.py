"""Problems and plans as files: documents, tables, queries in SQL; what reads and writes them."""

from __future__ import annotations

from nova_core.io.files import read_plan as read_plan
from nova_core.io.files import read_problem as read_problem
from nova_core.io.files import write_plan as write_plan
from nova_core.io.files import write_problem as write_problem
