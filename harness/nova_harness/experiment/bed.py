"""What an experiment runs on: its hosts, reachable, and its engine on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from nova_harness.control.disturbances import check_events
from nova_harness.engines.base import Runner, runner, running
from nova_harness.experiment.document import Experiment, ExperimentError
from nova_harness.experiment.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from nova_harness.experiment.engine_run import Bed
    from nova_testbed.inventory import Inventory

# In a rack's state directory: an experiment brought it up, and left it.
KEPT = "kept"


def find_inventory(experiment: Experiment, base: Path) -> Inventory:
    """The experiment's inventory: beside its file, or one that comes with Nova.

    What the experiment says of hosts and readings is checked as well, before any host is touched.

    Raises:
        NovaError: where there is none, or it cannot be used; for a broker that is none of its
            hosts, and for readings that are not there.
    """
    from nova_testbed.inventory import InventoryError, read_inventory

    beside = base / experiment.inventory
    inventory = read_inventory(beside if beside.is_file() else experiment.inventory)
    if experiment.broker:
        try:
            inventory.host(experiment.broker)
        except InventoryError as error:
            raise ExperimentError(f"broker: {error}") from None
    experiment.workload_in(base).check(experiment.windows_ms)
    return inventory


def reserved(inventory: Inventory) -> AbstractContextManager[None]:
    """Keep other programs from the hosts, as far as that can be: from those of a virtual rack.

    Raises:
        NovaError: that tells which program uses them.
    """
    if not inventory.virtual:
        return nullcontext()
    from nova_testbed.rack import VirtualRack

    return VirtualRack(inventory).reserved()


@contextmanager
def hosts_up(
    inventory: Inventory, tell: Callable[[str], None], *, keep: bool = False
) -> Iterator[Inventory]:
    """The inventory's hosts, reachable and reserved; a rack that was down is taken down again.

    So is one that an earlier run was to keep.

    Args:
        inventory: of the hosts.
        tell: is told what is being done.
        keep: leave a rack up in any case.

    Raises:
        NovaError: naming what is in the way.
    """
    if not inventory.virtual:
        yield inventory
        return
    from nova_testbed.rack import VirtualRack

    rack = VirtualRack(inventory)
    mark = rack.state.path / KEPT
    with rack.reserved():
        own = rack.status().state == "down" or mark.exists()
        tell("bringing hosts up")
        reachable = rack.up()
        try:
            yield reachable
        finally:
            if own and keep:
                mark.touch()
            elif own:
                tell("taking hosts down")
                rack.down()


def prepare_engine(experiment: Experiment, tell: Callable[[str], None]) -> Runner:
    """The experiment's engine, with everything of it ready on this machine.

    Args:
        experiment: what is run.
        tell: is told what is being done.

    Raises:
        NovaError: when something of it is not installed.
    """
    found = runner(experiment.engine)
    found.prepare(tell, experiment.transport)
    return found


@contextmanager
def engine_bed(
    experiment: Experiment,
    inventory: Inventory,
    found: Runner,
    tell: Callable[[str], None],
    *,
    keep: bool,
) -> Iterator[Bed]:
    """The engine on the hosts; limits are back in force at the end, however it ends.

    Args:
        experiment: what is run.
        inventory: of reachable hosts.
        found: what `prepare_engine` returned.
        tell: is told what is being done.
        keep: whether the engine goes on running.

    Raises:
        NovaError: naming what failed.
    """
    from nova_harness.experiment.engine_run import Bed
    from nova_testbed.hosts import connect

    with ExitStack() as stack:
        tell("connecting")
        limits = Limits(inventory)
        stack.enter_context(limits.off())
        hosts = stack.enter_context(connect(inventory))
        check_events(experiment.disturbances, inventory, experiment.name)
        engine = found.engine(hosts, experiment.transport, experiment.broker)
        stack.enter_context(running(engine, tell, keep=keep))
        yield Bed(engine, limits, experiment.settings)


def cores_of(bed: Bed) -> dict[str, float]:
    """Cores each host may use: its limit, or those of the machine."""
    hosts = bed.deployment.hosts
    output = hosts.run("nproc")
    return {host.spec.name: host.spec.cpu or float(output[host.spec.name].stdout) for host in hosts}
