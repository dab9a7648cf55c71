"""Round trips by UDP and TCP: ``serve TOKEN`` on one host, ``ping TOKEN COUNT RATE`` on others.

The server prints its port and answers what begins with the token, for ten minutes at most. The
client reads a JSON list of [name, address, port] and prints a JSON object: per name, the times in
ms, in the order they were taken.
"""

from __future__ import annotations

import contextlib
import json
import select
import selectors
import socket
import struct
import sys
import threading
import time
from typing import Any

SERVE_SECONDS = 600
NUMBER = struct.Struct("!I")
HOLD = struct.Struct("!Q")
# Beyond this after the last packet was sent, one that is not back is lost.
LOST_SECONDS = 2.0
PACKET_BYTES = 64
SO_TIMESTAMPNS = 35  # Linux; the socket module does not name it


def stamp(sock: socket.socket) -> None:
    """Let the kernel note when a packet came in, even if the program waits for the CPU then."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


def came_in(extra: list[Any]) -> int:
    """When a packet came in, ns since the epoch: what the kernel noted, else now."""
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("@ll", data[: struct.calcsize("@ll")])
            return int(seconds * 10**9 + nanoseconds)
    return time.time_ns()


def serve(token: bytes) -> None:
    """Answer."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    listener, packets = socket.socket(family), socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        for own in (listener, packets):
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("", 0))
    packets.bind(("", listener.getsockname()[1]))
    listener.listen(64)
    selector = selectors.DefaultSelector()
    stamp(packets)
    for own in (listener, packets):
        own.setblocking(False)
        selector.register(own, selectors.EVENT_READ)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    end = time.monotonic() + SERVE_SECONDS
    while time.monotonic() < end:
        for key, _ in selector.select(1.0):
            sock: Any = key.fileobj
            try:
                if sock is packets:
                    data, extra, _, address = packets.recvmsg(2048, 64)
                    if data.startswith(token):
                        # Its wait for the CPU here is no part of the round trip.
                        held = time.time_ns() - came_in(extra)
                        packets.sendto(data + HOLD.pack(max(0, held)), address)
                elif sock is listener:
                    connection, _ = listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(connection, selectors.EVENT_READ)
                else:
                    data = sock.recv(PACKET_BYTES)
                    if data.startswith(token):
                        sock.sendall(data)
                    else:
                        selector.unregister(sock)
                        sock.close()
            except OSError:
                if sock not in (packets, listener):
                    selector.unregister(sock)
                    sock.close()


def place_of(address: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Family and socket address; of a name that is not known, one that no packet reaches."""
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
    except OSError:
        return socket.AF_INET, ("", 0)
    return found[0], found[4]


def ping_udp(token: bytes, targets: list[Any], count: int, rate: float) -> list[list[float]]:
    """Times of ``count`` packets to each target in turn, ``rate`` packets/s in all."""
    places = [place_of(target[1], target[2]) for target in targets]
    socks = {family: socket.socket(family, socket.SOCK_DGRAM) for family, _ in places}
    for sock in socks.values():
        sock.setblocking(False)
        stamp(sock)
    times: list[list[float]] = [[] for _ in targets]
    total = count * len(targets)
    sent: dict[int, int] = {}
    begin = time.monotonic()
    number = 0
    while len(sent) or number < total:
        now = time.monotonic()
        due = begin + number / rate
        if number < total and now >= due:
            family, place = places[number % len(targets)]
            data = (token + NUMBER.pack(number)).ljust(PACKET_BYTES, b".")
            sent[number] = time.time_ns()
            try:
                socks[family].sendto(data, place)
            except OSError:
                del sent[number]
            number += 1
            continue
        if number == total:
            due = begin + total / rate + LOST_SECONDS
            if now > due:
                break
        ready, _, _ = select.select(list(socks.values()), [], [], max(0.0005, due - now))
        if not ready:
            continue
        try:
            data, extra, _, _ = ready[0].recvmsg(2048, 64)
        except OSError:
            continue
        came = came_in(extra)
        if not data.startswith(token) or len(data) != PACKET_BYTES + HOLD.size:
            continue
        (back,) = NUMBER.unpack_from(data, len(token))
        (held,) = HOLD.unpack_from(data, PACKET_BYTES)
        if back in sent:
            times[back % len(targets)].append((came - sent.pop(back) - held) / 1e6)
    return times


def ping_tcp(token: bytes, targets: list[Any], count: int) -> list[list[float]]:
    """Times of one message after the other on a connection to each target at the same time."""
    times: list[list[float]] = [[] for _ in targets]

    def one(number: int) -> None:
        target, mine = targets[number], times[number]
        try:
            sock = socket.create_connection((target[1], target[2]), timeout=30)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(count):
                begin = time.monotonic()
                sock.sendall(token.ljust(PACKET_BYTES, b"."))
                left = PACKET_BYTES
                while left:
                    data = sock.recv(left)
                    if not data:
                        return
                    left -= len(data)
                mine.append(1000 * (time.monotonic() - begin))
            sock.close()
        except OSError:
            return

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(targets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def main() -> None:
    """Serve or ping."""
    token = sys.argv[2].encode()
    if sys.argv[1] == "serve":
        serve(token)
        return
    count, rate = int(sys.argv[3]), float(sys.argv[4])
    targets = json.load(sys.stdin)
    udp = ping_udp(token, targets, count, rate)
    tcp = ping_tcp(token, targets, (count + 1) // 2)
    answer = {target[0]: {"udp": udp[i], "tcp": tcp[i]} for i, target in enumerate(targets)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
