"""Every way to place: one interface, found through the entry points ``nova.strategies``."""

from nova_core.strategies.base import Strategy, create, load, names, place

__all__ = ["Strategy", "create", "load", "names", "place"]
