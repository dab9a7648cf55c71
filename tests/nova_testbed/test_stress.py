from __future__ import annotations

import time
from dataclasses import replace

import pytest
from needs import skip_or_fail

from nova_testbed.host import Host
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import Inventory, InventoryError, StressProfile
from nova_testbed.stress import command, start, stop, stress

pytestmark = pytest.mark.e2e
# Little memory, and one host: whose machine this is has other things to do.
MEMORY = 1.0


@pytest.fixture
def host(connected: Hosts) -> Host:
    host = list(connected)[-1]
    if "stress-ng" not in host.programs:
        skip_or_fail(f"{host.name} has no stress-ng; apt-get install stress-ng")
    return host


def loaded(host: Host) -> list[int]:
    return [pid for job in host.jobs("stress") for pid in job.processes()]


def test_load_lasts_as_long_as_the_block(connected: Hosts, host: Host) -> None:
    profile = StressProfile((host.name,), 10.0, MEMORY)
    with pytest.raises(ZeroDivisionError), stress(connected, profile):
        # The shell, stress-ng, and a worker each for CPU and memory.
        deadline = time.monotonic() + 10
        while len(loaded(host)) < 4 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(loaded(host)) >= 4
        print(1 // 0)
    assert loaded(host) == []


def test_load_that_is_kept_and_stopped_later(inventory: Inventory, host: Host) -> None:
    profile = StressProfile((host.name,), 10.0, 0.0)
    with connect(inventory, [host.name]) as hosts:
        first = start(hosts, profile, keep=True, at=time.time() + 3600)[host.name]
        waiting = host.run(f"cat {' '.join(f'/proc/{pid}/comm' for pid in loaded(host))}")
        assert set(waiting.stdout.split()) == {"sh", "sleep"}
        second = start(hosts, profile, keep=True)[host.name]
        assert not first.alive()  # there is one load at a time
    with connect(inventory, [host.name]) as hosts:
        assert second.pid in loaded(hosts[host.name])
        assert stop(hosts) == [host.name]
        assert stop(hosts) == []
    assert loaded(host) == []


def test_shares_are_of_what_a_host_may_use(host: Host) -> None:
    limited = Host(replace(host.spec, cpu=0.5, memory=100 << 20), host.cancelled)
    try:
        line = command(limited, StressProfile((host.name,), 40.0, 25.0))
        assert "--cpu 1 --cpu-load 20 " in line
        assert f"--vm-bytes {25 << 20} " in line
        # Memory takes a while to fill: it does not wait.
        before, after = command(limited, StressProfile((host.name,), 40.0, 25.0), 9e9).split(
            "sleep"
        )
        assert f"--vm-bytes {25 << 20} " in before and before.endswith(" & ")
        assert "exec stress-ng" in after and "--cpu 1 " in after and "--vm" not in after
        assert "--cpu 1 --cpu-load 100" in command(limited, StressProfile((host.name,), 100.0, 0.0))
        assert "--vm" not in command(limited, StressProfile((host.name,), 100.0, 0.0))
    finally:
        limited.close()


def test_a_profile_without_hosts(connected: Hosts) -> None:
    with pytest.raises(InventoryError, match="names no hosts or roles"):
        start(connected, StressProfile())
