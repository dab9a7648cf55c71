"""Makes a PyFlink job run where a plan says."""

from __future__ import annotations

from typing import Any

from nova_flink import names

# Flink wants both given; they are drawn from an account and do not limit anything.
CPU_CORES, HEAP_MB = 0.01, 1


def slot_sharing_group(gateway: Any, node: str) -> Any:
    """The (Java) slot-sharing group that only a node's TaskManager can take."""
    builder = gateway.jvm.org.apache.flink.api.common.operators.SlotSharingGroup.newBuilder(
        names.group(node)
    )
    return (
        builder.setCpuCores(CPU_CORES)
        .setTaskHeapMemoryMB(HEAP_MB)
        .setExternalResource(names.resource(node), 1.0)
        .build()
    )
