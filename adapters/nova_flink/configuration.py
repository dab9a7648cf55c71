"""Generates Flink's configuration and start commands for each host.

Every TaskManager offers an external resource named after its node; a slot-sharing group that
requests it runs only there. All memory keys are set, so that Java is started directly, without the
helper processes of Flink's scripts.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from nova_engines.nodes import (
    COORDINATOR,
    MB,
    ConfigurationError,
    Node,
    bracketed,
    coordinator_of,
)
from nova_flink import names
from nova_flink.home import EXTENSION, JARS

# Parts of a TaskManager's memory, MB. The heap gets the rest of the process.
METASPACE = 112
OVERHEAD = 32
DIRECT = 64
NETWORK = 24
# The sink's node has an input gate for every operator that sends to it: each is guaranteed 320 kB
# of buffers and gets up to 4 MB if there is room.
COORDINATOR_NETWORK = 64
# Cut joins have many connections: of memory that is left on a host a quarter are buffers too, up to
# so many MB.
MOST_NETWORK = 128
# Tuples wait while a sender waits for the receiver's credits: many buffers are needed. But each
# buffer sent wakes threads at both ends: buffers must not be too small.
SHUFFLE = "nova.flink.FarShuffleServiceFactory"
SEGMENT = "16 kb"
FRAMEWORK_HEAP = 32
LEAST_HEAP = 64
TASK_MANAGER = 320
# The JobManager: heap, metaspace, direct memory and the JVM's own.
MANAGER_HEAP = 192
MANAGER_METASPACE = 144
MANAGER_DIRECT = 64
MANAGER_OVERHEAD = 64
MANAGER_OTHERS = MANAGER_METASPACE + MANAGER_DIRECT + MANAGER_OVERHEAD
# What sshd, the shell and the kernel's part of a host's processes take, MB.
RESERVE = 24

# Units of a node's resource: how many slots (jobs, or groups of one) may be on it at once.
SLOTS = 1000

# Flink's own list for Java 17, without the compiler's and Kerberos' modules, which hosts may lack.
MODULES = (
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.net",
            "java.io",
            "java.nio",
            "sun.nio.ch",
            "java.lang.reflect",
            "java.text",
            "java.time",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "java.util.concurrent.locks",
        )
    ),
)
# One garbage-collection thread: heaps are small, and a host's CPU limit counts every thread. By
# default Flink's messaging checks its timers every 10 ms, twice per process, which is half of an
# idle TaskManager's CPU use (12.9 against 6.1 thousandths of a core). Tuples do not pass there.
# Nor may its messages go through connections that others have opened: where both ends connect to
# each other at once, as when a TaskManager starts again, it may drop all that one of them sends,
# for minutes.
COMMON_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xss512k",
    "-Dpekko.scheduler.tick-duration=100ms",
    "-Dpekko.remote.classic.use-passive-connections=off",
)
# Optimised code needs less CPU for a join, but compiling it takes seconds of a whole core and
# 30 MB: not on less than one core, nor for processes that no tuples pass.
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
TASK_MANAGER_MAIN = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
JOB_MANAGER_MAIN = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"

LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = File
logger.pekko.name = org.apache.pekko
logger.pekko.level = WARN
logger.netty.name = org.jboss.netty.channel.DefaultChannelPipeline
logger.netty.level = OFF
appender.file.name = File
appender.file.type = RollingFile
appender.file.fileName = ${{sys:log.file}}
appender.file.filePattern = ${{sys:log.file}}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss,SSS}} %-5p %c - %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def node_settings(node: str) -> dict[str, str | int]:
    """Settings by which a TaskManager is a node's; a user's cluster needs no others."""
    resource = names.resource(node)
    return {
        "taskmanager.resource-id": names.task_manager(node),
        "external-resources": resource,
        f"external-resource.{resource}.amount": SLOTS,
    }


@dataclass(frozen=True)
class ClusterConfiguration:
    """What every host of a cluster needs.

    Attributes:
        nodes: all hosts, one of them the coordinator.
        home_path: the engine home as hosts see it, absolute.
        work_directory: where configuration, logs and temporary files go on every host, absolute.
        rpc_port: of the JobManager.
        rest_port: of the JobManager's REST interface.
        blob_port: of the JobManager's file server.
        task_manager_port: for control messages to a TaskManager.
        data_port: for tuples between TaskManagers.
        metrics_ports: first of two ports for metrics.
        settings: configuration keys of Flink that are added or replaced on every host.
        java: the Java program on the hosts.
        task_manager_options: added to those of every TaskManager, e.g. the engine home's.
        job_manager_options: added to those of the JobManager.
        extra_jars: on the hosts, absolute; behind Flink's and Nova's on the class path.
        task_manager: most of its host's memory that a TaskManager takes, MB; more network buffers
            than the least come on top where there is room.
        job_manager_heap: heap of the JobManager, MB; jobs that carry their readings need more.
    """

    nodes: Sequence[Node]
    home_path: str | Path
    work_directory: str = "/tmp/nova-flink"
    rpc_port: int = 6123
    rest_port: int = 8081
    blob_port: int = 6124
    task_manager_port: int = 6122
    data_port: int = 6125
    metrics_ports: int = 6126
    settings: Mapping[str, str | int] = field(default_factory=dict)
    java: str = "java"
    task_manager_options: Sequence[str] = ()
    job_manager_options: Sequence[str] = ()
    extra_jars: Sequence[str | Path] = ()
    task_manager: int = TASK_MANAGER
    job_manager_heap: int = MANAGER_HEAP

    def __post_init__(self) -> None:
        coordinator_of(self.nodes)
        for node in self.nodes:
            self._memory(node)
        for what, path in (
            ("home_path", str(self.home_path)),
            ("work_directory", self.work_directory),
        ):
            if not PurePosixPath(path).is_absolute():
                raise ConfigurationError(f"{what}: {path!r}: expected an absolute path")

    @property
    def coordinator(self) -> Node:
        """The host of the JobManager."""
        return coordinator_of(self.nodes)

    @property
    def rest_url(self) -> str:
        """URL of the JobManager's REST interface."""
        return f"http://{bracketed(self.coordinator.address)}:{self.rest_port}"

    def files(self, node: Node) -> dict[str, str]:
        """A host's files: path relative to the work directory, text."""
        keys = self._keys(node)
        return {
            "conf/config.yaml": "".join(f"{k}: {_scalar(v)}\n" for k, v in keys.items()),
            "conf/log4j-taskmanager.properties": LOGGING.format(level="WARN"),
            "conf/log4j-jobmanager.properties": LOGGING.format(level="INFO"),
        }

    def coordinator_command(self, node: Node) -> str:
        """The shell command that starts the JobManager.

        Raises:
            ConfigurationError: for a host that is not the coordinator.
        """
        if node.role != COORDINATOR:
            raise ConfigurationError(f"host {node.name} is not the coordinator")
        options = [
            "-Xms64m",
            f"-Xmx{self.job_manager_heap}m",
            f"-XX:MaxMetaspaceSize={MANAGER_METASPACE}m",
            *self.job_manager_options,
        ]
        return self._command(node, "jobmanager", options, JOB_MANAGER_MAIN)

    def task_manager_command(self, node: Node) -> str:
        """The shell command that starts the host's TaskManager."""
        memory = self._memory(node)
        options = [
            "-Xms48m",
            f"-Xmx{memory.heap}m",
            f"-XX:MaxDirectMemorySize={DIRECT + memory.network}m",
            f"-XX:MaxMetaspaceSize={METASPACE}m",
            *self.task_manager_options,
        ]
        return self._command(node, "taskmanager", options, TASK_MANAGER_MAIN)

    def _command(self, node: Node, process: str, options: Sequence[str], main: str) -> str:
        home, work = str(self.home_path), self.work_directory
        # Extra jars come last: the archives of loaded classes were made with the others only.
        own = [*(f"{home}/flink/lib/{name}" for name in JARS), f"{home}/{EXTENSION}"]
        jars = [*own, *map(str, self.extra_jars)]
        common = list(COMMON_OPTIONS)
        if main == JOB_MANAGER_MAIN or (node.cpu is not None and node.cpu < 1):
            common.append(QUICK_COMPILER)
        if node.cpu is not None:
            # Limits may be lifted while Java starts, so it must not count the machine's cores.
            common.append(f"-XX:ActiveProcessorCount={max(1, math.ceil(node.cpu))}")
        words = [
            self.java,
            *common,
            *options,
            *MODULES,
            f"-Djava.io.tmpdir={work}/tmp",
            f"-Dlog.file={work}/log/{process}.log",
            f"-Dlog4j.configurationFile={work}/conf/log4j-{process}.properties",
            "-cp",
            ":".join(jars),
            main,
            "--configDir",
            f"{work}/conf",
        ]
        temporary = shlex.quote(f"{work}/tmp")
        return f"mkdir -p {temporary} && exec {shlex.join(words)}"

    def _memory(self, node: Node) -> Memory:
        """A TaskManager's memory on a host.

        Raises:
            ConfigurationError: naming the host that is too small, and the memory it needs.
        """
        coordinator = node.role == COORDINATOR
        network = COORDINATOR_NETWORK if coordinator else NETWORK
        most = self.task_manager
        if node.memory is None:  # no more than the default
            most = min(most, TASK_MANAGER)
        requested = most - NETWORK + network
        others = RESERVE + (MANAGER_OTHERS + self.job_manager_heap if coordinator else 0)
        fixed = METASPACE + OVERHEAD + DIRECT + network
        process = requested if node.memory is None else min(requested, node.memory // MB - others)
        if node.memory is not None:
            left = (node.memory // MB - others - process) // 4
            more = max(0, min(left, MOST_NETWORK - network))
            process, network, fixed = process + more, network + more, fixed + more
        if process - fixed < LEAST_HEAP:
            what = "a JobManager and a TaskManager" if coordinator else "a TaskManager"
            raise ConfigurationError(
                f"host {node.name}: memory: {(node.memory or 0) // MB} MiB is too little for "
                f"{what}; at least {others + fixed + LEAST_HEAP} MiB"
            )
        return Memory(process - fixed, network)

    def _keys(self, node: Node) -> dict[str, str | int]:
        memory = self._memory(node)
        master = self.coordinator.address
        keys: dict[str, str | int] = {
            "jobmanager.rpc.address": master,
            "jobmanager.rpc.port": self.rpc_port,
            "jobmanager.bind-host": master,
            "jobmanager.memory.heap.size": f"{self.job_manager_heap}m",
            "jobmanager.memory.off-heap.size": f"{MANAGER_DIRECT}m",
            "jobmanager.memory.jvm-metaspace.size": f"{MANAGER_METASPACE}m",
            "jobmanager.memory.jvm-overhead.min": f"{MANAGER_OVERHEAD}m",
            "jobmanager.memory.jvm-overhead.max": f"{MANAGER_OVERHEAD}m",
            "blob.server.port": str(self.blob_port),
            "rest.address": master,
            "rest.port": self.rest_port,
            "rest.bind-port": str(self.rest_port),
            "rest.bind-address": master,
            # Jobs come from clients only, not from web pages, whether Flink's own or others.
            "web.submit.enable": "false",
            "web.cancel.enable": "false",
            "web.rescale.enable": "false",
            "web.access-control-allow-origin": self.rest_url,
            # By default REST caches a job's state for 3 s and its counters for 10 s.
            "web.refresh-interval": "200 ms",
            "metrics.fetcher.update-interval": "1 s",
            "metrics.internal.query-service.port": f"{self.metrics_ports}-{self.metrics_ports + 1}",
            # Otherwise the JobManager looks up the name of each TaskManager that registers, again
            # after one was killed, and answers nothing until the name server does.
            "jobmanager.retrieve-taskmanager-hostname": "false",
            # Once the JobManager has run for this long, a request that no TaskManager has room for
            # fails at once instead of after five minutes.
            "resourcemanager.standalone.start-up-time": "8 s",
            # A later answer is thrown away, and asked for again: by default after 100 ms. A
            # JobManager on a fifth of a core takes longer while TaskManagers register for a job.
            "cluster.registration.initial-timeout": "2 s",
            # On busy CPUs, handing over a free slot may take long.
            "slot.request.timeout": "45 s",
            # A killed TaskManager is noticed at once, one that hangs or is cut off only by this.
            # On a busy machine a healthy one may be silent for many seconds.
            "heartbeat.interval": "3 s",
            "heartbeat.timeout": "60 s",
            "pekko.ask.timeout": "60 s",
            "restart-strategy.type": "disable",
            "io.tmp.dirs": f"{self.work_directory}/tmp",
            "taskmanager.host": node.address,
            "taskmanager.bind-host": node.address,
            "taskmanager.rpc.port": str(self.task_manager_port),
            "taskmanager.data.port": self.data_port,
            **node_settings(node.name),
            "taskmanager.numberOfTaskSlots": 1,
            # Unpinned operators are spread over all TaskManagers, not put on the first with room.
            "taskmanager.load-balance.mode": "SLOTS",
            # A budget of which each slot takes 0.01, not a limit.
            "taskmanager.cpu.cores": "100.0",
            "taskmanager.memory.framework.heap.size": f"{FRAMEWORK_HEAP}m",
            "taskmanager.memory.task.heap.size": f"{memory.heap - FRAMEWORK_HEAP}m",
            "taskmanager.memory.framework.off-heap.size": f"{DIRECT}m",
            "taskmanager.memory.task.off-heap.size": "0m",
            "taskmanager.memory.network.min": f"{memory.network}m",
            "taskmanager.memory.network.max": f"{memory.network}m",
            "taskmanager.memory.managed.size": "0m",
            "taskmanager.memory.segment-size": SEGMENT,
            "shuffle-service-factory.class": SHUFFLE,
            "taskmanager.memory.jvm-metaspace.size": f"{METASPACE}m",
            "taskmanager.memory.jvm-overhead.min": f"{OVERHEAD}m",
            "taskmanager.memory.jvm-overhead.max": f"{OVERHEAD}m",
        }
        return keys | dict(self.settings)


@dataclass(frozen=True)
class Memory:
    """Memory of a TaskManager, MB.

    Attributes:
        heap: Java's heap.
        network: network buffers.
    """

    heap: int
    network: int


def _scalar(value: str | int) -> str:
    """A value in Flink's YAML: quoted, unless a plain number."""
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("'", "''") + "'"
