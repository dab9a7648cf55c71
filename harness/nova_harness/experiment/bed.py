"""The test bed of an experiment: its reachable hosts, and its engine on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from nova_harness.control.disturbances import check_events
from nova_harness.engines.base import ControlledEngine, Runner, runner, running
from nova_harness.experiment import feed
from nova_harness.experiment.document import Experiment, ExperimentError
from nova_harness.experiment.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from nova_harness.experiment.engine_run import Bed
    from nova_testbed.inventory import Inventory

# Mark in a rack's state directory: an experiment started the rack, and left it running.
LEFT_UP = "kept"


def find_inventory(experiment: Experiment, base: Path) -> Inventory:
    """The experiment's inventory: beside its file, or one that comes with Nova.

    Also checks the experiment's hosts and readings, before it uses any host.

    Raises:
        NovaError: for a missing or unusable inventory, a broker that is none of its hosts, or
            missing readings.
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
    """Reserve the hosts of a virtual rack; real hosts cannot be reserved.

    Raises:
        NovaError: naming the program that uses them.
    """
    if not inventory.virtual:
        return nullcontext()
    from nova_testbed.rack import VirtualRack

    return VirtualRack(inventory).reserved()


@contextmanager
def hosts_up(
    inventory: Inventory, tell: Callable[[str], None], *, keep: bool = False
) -> Iterator[Inventory]:
    """Start and reserve the inventory's hosts; afterwards, stop a rack that was down before.

    A rack that an earlier run left up is stopped, too.

    Args:
        inventory: of the hosts.
        tell: progress callback.
        keep: leave the rack up in any case.

    Raises:
        NovaError: naming what prevents the start.
    """
    if not inventory.virtual:
        yield inventory
        return
    from nova_testbed.rack import VirtualRack

    rack = VirtualRack(inventory)
    mark = rack.state.path / LEFT_UP
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
    """Prepare the experiment's engine, and what its sources need, on this machine.

    Args:
        experiment: what is run.
        tell: progress callback.

    Raises:
        NovaError: when a part of it is not installed.
    """
    engine = runner(experiment.engine)
    engine.prepare(tell, experiment.source)
    feed.check(experiment.transport)
    return engine


@contextmanager
def engine_bed(
    experiment: Experiment,
    inventory: Inventory,
    chosen: Runner,
    tell: Callable[[str], None],
    *,
    keep: bool,
) -> Iterator[Bed]:
    """Run the engine on the hosts; limits are restored at the end in any case.

    Args:
        experiment: what is run.
        inventory: of reachable hosts.
        chosen: the result of `prepare_engine`.
        tell: progress callback.
        keep: leave the engine running.

    Raises:
        NovaError: naming what failed.
    """
    from nova_harness.experiment.engine_run import Bed
    from nova_testbed.hosts import connect
    from nova_testbed.probing import refuse_clocks

    with ExitStack() as stack:
        tell("connecting")
        limits = Limits(inventory)
        stack.enter_context(limits.off())
        hosts = stack.enter_context(connect(inventory))
        if not inventory.virtual:  # virtual hosts share this machine's clock
            refuse_clocks(hosts)
        check_events(experiment.disturbances, inventory, experiment.name)
        engine = chosen.engine(hosts, experiment.source)
        fed = feed.feed_of(experiment.transport, hosts, experiment.broker)
        if experiment.settings.miss_after_s is not None:
            assert isinstance(engine, ControlledEngine)
            engine.miss_after(experiment.settings.miss_after_s)
        stack.enter_context(fed.running(tell, keep=keep))
        stack.enter_context(running(engine, tell, keep=keep))
        fed.await_up(tell)
        yield Bed(engine, limits, experiment.settings, fed)


def cores_of(bed: Bed) -> dict[str, float]:
    """Cores that each host may use: its limit, or the machine's cores."""
    hosts = bed.deployment.hosts
    output = hosts.run("nproc")
    return {host.spec.name: host.spec.cpu or float(output[host.spec.name].stdout) for host in hosts}
