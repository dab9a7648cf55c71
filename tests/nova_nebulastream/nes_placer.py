"""A stand-in of the current generation's placement: its integer program, as read in its sources.

Sources and sinks are fixed and take no room, every other operator takes one unit; an operator's
input is on its worker or upstream of it; the sum over operators of hops to their sources is least.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

Operators = dict[str, tuple[str, ...]]


ORDERS = (("filter", "watermark"), ("watermark", "filter"))


def operators_of(topology: dict[str, Any], order: tuple[str, str] = ORDERS[0]) -> Operators:
    """Operators with their inputs, as the parser and the optimizer make them of the query.

    Which of an input's two comes first differs between revisions.
    """
    found: Operators = {}
    ends = []
    for line, side in zip(topology["query"].splitlines()[2:4], ("left", "right"), strict=True):
        last = f"source {side}"
        found[last] = ()
        for kind in order:
            if kind != "filter" or "WHERE" in line:
                found[f"{kind} {side}"] = (last,)
                last = f"{kind} {side}"
        ends.append(last)
    found["join"] = tuple(ends)
    found |= {"all": ("join",), "select": ("all",), "sink": ("select",)}
    return found


def place(
    topology: dict[str, Any],
    forbidden: tuple[str, str] | None = None,
    order: tuple[str, str] = ORDERS[0],
) -> tuple[float, dict[str, str]] | None:
    """Cost and placement; None where there is none. ``forbidden``: an operator and a host."""
    operators = operators_of(topology, order)
    room = {one["host"]: one["max_operators"] for one in topology["workers"]}
    down = {one["host"]: one.get("downstream", []) for one in topology["workers"]}
    hosts, names = list(room), list(operators)
    hops = {host: _hops(host, down) for host in hosts}
    column = {pair: i for i, pair in enumerate(product(names, hosts))}
    left, right = topology["physical"]
    fixed = {
        "source left": left["host"],
        "source right": right["host"],
        "sink": topology["sinks"][0]["host"],
    }
    lower, upper = np.zeros(len(column)), np.ones(len(column))
    for name, host in fixed.items():
        lower[column[name, host]] = 1
    if forbidden:
        upper[column[forbidden]] = 0
    rows, low, high = [], [], []

    def add(columns: list[tuple[str, str]], least: float, most: float) -> None:
        row = np.zeros(len(column))
        row[[column[one] for one in columns]] = 1
        rows.append(row)
        low.append(least)
        high.append(most)

    for name in names:
        add([(name, host) for host in hosts], 1, 1)
    for host in hosts:
        add([(name, host) for name in names if name not in fixed], 0, room[host])
    for name, inputs in operators.items():
        for one, at, below in product(inputs, hosts, hosts):
            if at not in hops[below]:
                add([(name, at), (one, below)], 0, 1)
    cost = np.zeros(len(column))
    for (name, host), i in column.items():
        distances = [hops[fixed[s]].get(host) for s in _sources(name, operators)]
        # Unreachable places are ruled out above; the engine's path counts its nodes.
        cost[i] = sum(distance + 1 for distance in distances if distance is not None)
    answer = milp(
        cost,
        integrality=np.ones(len(column)),
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(np.array(rows), low, high),
    )
    if answer.x is None:
        return None
    chosen = {name: host for (name, host), i in column.items() if answer.x[i] > 0.5}
    return float(answer.fun), chosen


def _hops(begin: str, down: dict[str, list[str]]) -> dict[str, int]:
    """Hops to every host the data of one can reach."""
    found, edge = {begin: 0}, [begin]
    for host in edge:
        for target in down[host]:
            if target not in found:
                found[target] = found[host] + 1
                edge.append(target)
    return found


def _sources(name: str, operators: Operators) -> list[str]:
    if name.startswith("source"):
        return [name]
    return [source for one in operators[name] for source in _sources(one, operators)]
