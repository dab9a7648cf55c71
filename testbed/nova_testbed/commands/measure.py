"""``nova testbed measure``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.errors import NovaError
from nova_core.numbers import SEED, NumberRange, at_least
from nova_testbed.commands import shared
from nova_testbed.tools.operators import OPERATORS

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory
    from nova_testbed.probing import Capacity, ClockOffset, PairRtt


@dataclass(frozen=True)
class _Pings:
    """Round trips to measure; values of `ping_options`."""

    neighbours: int | None
    seed: int
    count: int


@dataclass(frozen=True)
class _Files:
    """What is written; values of `file_options`."""

    output: Path | None
    rate: float
    pairs: Path | None


ping_options = shared.together(
    "pings",
    _Pings,
    click.option("--neighbours", "-m", type=at_least(1), help="Hosts measured with each."),
    click.option("--seed", type=SEED, default=0, help="Of the draw of neighbours."),
    click.option(
        "--count", type=at_least(1), default=20, show_default=True, help="Pings per pair."
    ),
)
file_options = shared.together(
    "files",
    _Files,
    click.option(
        "--output",
        "-o",
        type=paths.OUTPUT,
        help="Write a problem (.yaml or .json) of these hosts, measured; implies --capacity.",
    ),
    click.option(
        "--rate",
        type=NumberRange(min=0, min_open=True),
        default=1000.0,
        show_default=True,
        help="Of each source in that problem, tuples/s.",
    ),
    click.option(
        "--pairs",
        type=paths.OUTPUT,
        help="Write the one-way latencies as CSV: source,target,latency.",
    ),
)


@click.command()
@shared.inventory_option
@shared.on_option
@ping_options
@click.option(
    "--capacity",
    "operator",
    type=click.Choice(list(OPERATORS)),
    help="Measure also how many tuples/s of this operator each host can take.",
)
@click.option("--clocks", is_flag=True, help="Measure also how far the hosts' clocks are off.")
@file_options
@click.option("--strict", is_flag=True, help="Exit code 1 when a link is not as asked.")
@shared.json_option
def measure(
    place: str,
    on: tuple[str, ...],
    pings: _Pings,
    operator: str | None,
    clocks: bool,
    files: _Files,
    strict: bool,
    as_json: bool,
) -> None:
    """Measure round trips between the hosts and compare them with what was asked.

    A link is kept when its median is within 1 ms and 2 % of what the inventory asks.
    """
    inventory = shared.running(shared.read(place))
    names = shared.chosen(inventory, on)
    from nova_testbed import probing, topology

    part = replace(inventory, hosts=tuple(inventory.host(name) for name in names))
    _refuse_suffix(files.output)
    if files.output is not None and operator is None:
        operator = next(iter(OPERATORS))
    chosen = probing.choose_pairs(part, pings.neighbours, pings.seed)
    with shared.connected(inventory, names) as hosts:
        asking = len({source for source, _ in chosen})
        with shared.counter("round trips", asking) as advance:
            rtts = probing.measure_rtt(hosts, chosen, count=pings.count, progress=advance)
        capacities: list[Capacity] = []
        if operator is not None:
            with shared.counter("capacity", len(names)) as advance:
                capacities = probing.measure_capacity(hosts, operator, progress=advance)
        offsets = probing.clock_offsets(hosts) if clocks else []
    for offset in offsets:
        if offset.fault:
            console.warn(f"{offset.host}: {offset.fault}")
    if files.output is not None:
        topology.write_problem(part, rtts, capacities, files.output, files.rate)
    if files.pairs is not None:
        topology.write_pairs(rtts, files.pairs)
    if as_json:
        console.print_json(_measured(rtts, capacities, offsets))
    else:
        _show_measured(inventory, rtts, capacities, offsets)
        for path in (files.output, files.pairs):
            if path is not None:
                console.show(f"written to {path}")
    all_kept = all(rtt.kept for rtt in rtts if rtt.asked_ms)
    click.get_current_context().exit(1 if strict and not all_kept else 0)


def _refuse_suffix(output: Path | None) -> None:
    if output is not None and output.suffix not in (".yaml", ".yml", ".json"):
        raise NovaError(f"{output}: a problem document is a .yaml or .json file")


def _measured(
    rtts: Sequence[PairRtt], capacities: Sequence[Capacity], offsets: Sequence[ClockOffset]
) -> dict[str, Any]:
    return {
        "pairs": [
            {
                "source": rtt.source,
                "target": rtt.target,
                "asked_ms": rtt.asked_ms,
                "median_ms": rtt.median_ms,
                "lost_percent": rtt.lost_percent,
                "kept": rtt.kept,
                "udp_ms": rtt.udp_ms,
                "tcp_ms": rtt.tcp_ms,
            }
            for rtt in rtts
        ],
        "capacities": capacities,
        "clocks": offsets,
    }


def _show_measured(
    inventory: Inventory,
    rtts: Sequence[PairRtt],
    capacities: Sequence[Capacity],
    offsets: Sequence[ClockOffset],
) -> None:
    import statistics

    columns = ["source", "target", ">asked", ">median", ">error", ">least", ">most", ">TCP"]
    table = console.table("round trips, ms", [*columns, ">lost", "kept"])
    for rtt in rtts:
        least, most = (rtt.udp_ms[0], rtt.udp_ms[-1]) if rtt.udp_ms else (float("nan"),) * 2
        tcp = statistics.median(rtt.tcp_ms) if rtt.tcp_ms else float("nan")
        error = rtt.median_ms - rtt.asked_ms
        figures = [console.number(x, 2) for x in (rtt.median_ms, error, least, most, tcp)]
        verdict = "-" if not rtt.asked_ms else "yes" if rtt.kept else "[red]no[/]"
        requested = console.number(rtt.asked_ms, 2)
        lost = console.number(rtt.lost_percent, 0) + " %"
        table.add_row(rtt.source, rtt.target, requested, *figures, lost, verdict)
    asked_of = [rtt for rtt in rtts if rtt.asked_ms]
    if asked_of:
        kept_ones = sum(rtt.kept for rtt in asked_of)
        worst = max(abs(rtt.median_ms - rtt.asked_ms) for rtt in asked_of)
        table.caption = (
            f"{kept_ones} of {len(asked_of)} links are within 1 ms and 2 % of what was asked; "
            f"greatest error {worst:.2f} ms"
        )
    console.show(table)
    if capacities:
        table = console.table(
            f"capacity, {capacities[0].operator}",
            ["host", ">tuples/s", ">cores asked", ">cores got"],
        )
        for entry in capacities:
            requested = shared.cores(inventory.host(entry.host).cpu)
            rate = console.number(entry.tuples_per_second, 0)
            table.add_row(entry.host, rate, requested, f"{entry.cores:.3f}")
        console.show("", table)
    if offsets:
        table = console.table("clocks", ["host", ">ahead, ms", ">within, ms"])
        for offset in offsets:
            table.add_row(offset.host, f"{offset.offset_ms:+.3f}", f"{offset.error_ms:.3f}")
        console.show("", table)
