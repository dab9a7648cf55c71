"""Running the service: a socket, signals and an orderly end."""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn

from nova_core import console
from nova_core.errors import NovaError
from nova_core.service.application import application
from nova_core.service.connections import Connection, allow_connections
from nova_core.service.endpoints import Endpoints
from nova_core.service.settings import Settings
from nova_core.service.store import Store

# Seconds for running requests to end; what still runs after the second ones is broken off. What
# has been answered is on disk, and what was not will not have happened.
PATIENCE = 2
LAST = 4
# Seconds after which a connection that nobody uses is closed.
KEEP_ALIVE = 75
# Seconds after which threads that read plans yield to requests (Python's default: 5 ms).
SWITCH = 0.0005


def serve(
    settings: Settings, ready: Callable[[str], None], others: Sequence[Endpoints] = ()
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        settings: how.
        ready: called with the service's URL once it answers.
        others: operations of other packages.

    Raises:
        NovaError: when the address or the directory cannot be used.
    """
    listener = listen(settings.host, settings.port)
    with listener:
        address, port = listener.getsockname()[:2]
        local = ipaddress.ip_address(address).is_loopback
        shown = f"[{address}]" if ":" in address else address
        if not local and settings.token is None:
            raise NovaError(
                f"--host {settings.host}: anyone who reaches this address could use the service; "
                "give --token-file or NOVA_TOKEN, or listen on 127.0.0.1"
            )
        if not local:
            console.warn(
                f"listening on {shown}:{port}: token and data cross the network unencrypted; put a "
                "proxy with TLS before it"
            )
        # What it keeps is for its user alone.
        os.umask(0o077)
        allow_connections()
        store = Store(settings)
        if settings.token is None:
            console.warn(
                "there is no token: every user of this machine, and every client of a proxy, may "
                "use the service; require one with --token-file or NOVA_TOKEN"
            )
        hosts = {"localhost", "127.0.0.1", "::1", address, settings.host.lower()}
        app = application(store, frozenset(hosts) if local else None, others)
        config = uvicorn.Config(
            app,
            http=Connection,
            access_log=False,
            log_config=None,
            lifespan="on",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=PATIENCE,
        )
        sys.setswitchinterval(SWITCH)
        gc.callbacks.append(_spare)
        # uvicorn handles SIGTERM itself, and raises the signal again when it ends.
        signal.signal(signal.SIGTERM, lambda *_: None)
        _Server(config, store, lambda: ready(f"http://{shown}:{port}")).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it is ready, and ends streams before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, store: Store, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._store = store
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, within a time."""
        end = threading.Timer(LAST, os._exit, (0,))
        end.daemon = True
        end.start()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._store.end_streams()
        await super().shutdown(sockets)


def _spare(phase: str, collection: dict[str, int]) -> None:
    """Exclude surviving objects from later collections, which would delay requests."""
    if phase == "stop" and collection["generation"] == 2:
        gc.freeze()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, for a server to accept on.

    Args:
        host: address or name.
        port: 0 for any that is free.

    Raises:
        NovaError: when the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Two sockets can be bound to one port until one of them listens.
        listener.listen()
    except OSError as error:
        raise NovaError(
            f"{host}:{port}: cannot be listened on: {error.strerror or error}"
        ) from None
    return listener
