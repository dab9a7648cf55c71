"""Operator graphs for Nova: queries of filters, aggregates and joins (paper, section 3.6)."""

from __future__ import annotations

from nova_core.queries.document import Queries, queries_of, read_queries, read_topology
from nova_core.queries.placing import QueryParameters, place_queries
from nova_core.queries.plan import Instance, QueryPlan
from nova_core.queries.plan_document import read_query_plan, write_query_plan
from nova_core.queries.verify import verify

__all__ = [
    "Instance",
    "Queries",
    "QueryParameters",
    "QueryPlan",
    "place_queries",
    "queries_of",
    "read_queries",
    "read_query_plan",
    "read_topology",
    "verify",
    "write_query_plan",
]
