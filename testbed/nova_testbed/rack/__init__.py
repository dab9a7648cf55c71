"""The virtual rack: hosts made of Linux namespaces, on this machine alone."""

from __future__ import annotations

from nova_testbed.rack.cgroups import Usage
from nova_testbed.rack.cleanup import Leftover, clean, leftovers
from nova_testbed.rack.rack import VirtualRack
from nova_testbed.rack.requirements import Capability, capabilities, install_command, missing
from nova_testbed.rack.state import RackError, RackWarning
from nova_testbed.rack.status import HostStatus, RackStatus
from nova_testbed.rack.switch import SwitchStatistics

__all__ = [
    "Capability",
    "HostStatus",
    "Leftover",
    "RackError",
    "RackStatus",
    "RackWarning",
    "SwitchStatistics",
    "Usage",
    "VirtualRack",
    "capabilities",
    "clean",
    "install_command",
    "leftovers",
    "missing",
]
