"""Every way to place: one interface, found through the entry points ``nova.strategies``."""

from nova_core.strategies.base import Strategy as Strategy
from nova_core.strategies.base import create as create
from nova_core.strategies.base import load as load
from nova_core.strategies.base import names as names
from nova_core.strategies.base import place as place
