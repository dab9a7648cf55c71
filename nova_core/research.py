"""What the distribution nova-research adds by entry points, to say so where it is not installed."""

from __future__ import annotations

from nova_core.extras import install_command

# By group of entry points, as in research/pyproject.toml.
NAMES = {
    "nova.strategies": (
        "nova-paper",
        *("nes-bottom-up", "nes-top-down", "ifcop"),
        *("sbon-relaxation", "sbon-optimal", "sbon-ip-multicast"),
        *("sbon-producer", "sbon-consumer", "sbon-random"),
        *("whitewater-greedy", "whitewater-tabu"),
        *("whitewater-reactive-tabu", "whitewater-annealing"),
        "costream",
    ),
    "nova.predictors": ("costream",),
    "nova.commands": ("corpus", "learn", "predict", "reproduce", "query.reorder"),
}


def absent(group: str, what: str, name: str) -> str:
    """The line for a name that is not installed; empty where nova-research does not bring it.

    Args:
        group: of the entry points.
        what: what the line calls it before its name.
        name: of the entry point; a dot is in front of a command of a group.
    """
    if name not in NAMES.get(group, ()):
        return ""
    name = name.replace(".", " ")
    return f"{what} {name}: is part of nova-research; {install_command('research')}"
