"""The virtual rack: hosts made of Linux namespaces, on this machine alone."""

from __future__ import annotations

from nova_testbed.rack.cgroups import Usage as Usage
from nova_testbed.rack.cleanup import Leftover as Leftover
from nova_testbed.rack.cleanup import clean as clean
from nova_testbed.rack.cleanup import leftovers as leftovers
from nova_testbed.rack.rack import VirtualRack as VirtualRack
from nova_testbed.rack.requirements import Capability as Capability
from nova_testbed.rack.requirements import capabilities as capabilities
from nova_testbed.rack.requirements import install_command as install_command
from nova_testbed.rack.requirements import missing as missing
from nova_testbed.rack.state import RackError as RackError
from nova_testbed.rack.state import RackWarning as RackWarning
from nova_testbed.rack.status import HostStatus as HostStatus
from nova_testbed.rack.status import RackStatus as RackStatus
from nova_testbed.rack.switch import SwitchStatistics as SwitchStatistics
