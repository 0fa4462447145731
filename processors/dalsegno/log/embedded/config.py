"""The broker's settings: one node, loopback only, everything in one folder."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping

from dalsegno.errors import PortTaken

_PORTS = range(20_000, 32_000)
LOOPBACK = "127.0.0.1"
LOG_FOLDER = "log"
JVM_OPTIONS = (
    "-Xms96m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.utils.AppInfoParser=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)

# Ten years: the default of 7 days would forget what a worker had committed while the laptop was shut for a holiday.
_KEEP_GROUP_OFFSETS_MINUTES = 5_256_000

_FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    # Relative to the folder that the broker is started in: no character of the data folder's path can break it.
    "log.dirs": LOG_FOLDER,
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "offsets.retention.minutes": str(_KEEP_GROUP_OFFSETS_MINUTES),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    # A killed worker's open transaction is looked for every second instead of every ten: its successor waits less.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # After a kill the new process is refused until the old one's session has passed (9 s by default).
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # One cleaner thread allocates its map at once: the default of 128 MiB is a third of this heap.
    "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
    # Every partition maps its index files into memory, at full size for its last segment.
    "log.index.size.max.bytes": str(1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
}


def properties(port: int, controller_port: int, overrides: Mapping[str, str]) -> str:
    """The text of ``server.properties``; ``overrides`` win, ports excepted."""
    listeners = f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}"
    settings = {
        **_FIXED,
        **overrides,
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller_port}",
    }
    return "".join(f"{name}={value}\n" for name, value in sorted(settings.items()))


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does: a port in TIME_WAIT after the last stop counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on now, from below the range that systems take outgoing connections from.

    Inside that range a client that tries to reach a stopped broker can be given the very port and connect to itself.
    """
    chosen: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if port_is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise PortTaken(
        f"no {count} free ports from {_PORTS.start} to {_PORTS.stop - 1} on {LOOPBACK}",
        todo="end programs that listen there, or name a port with --port",
    )
