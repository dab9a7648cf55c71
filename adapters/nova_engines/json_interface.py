"""Engines' interfaces of JSON over HTTP (standard library only)."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, ClassVar

from nova_core.errors import NovaError

TIMEOUT_S = 20.0
QUOTED = 200


class JsonInterface:
    """An interface of an engine; a subclass says which.

    Args:
        url: e.g. ``http://10.0.0.1:8081``.

    Attributes:
        engine: its name for people.
        server: what answers at the URL, for people.
        failure: type of errors.
    """

    engine: ClassVar[str]
    server: ClassVar[str]
    failure: ClassVar[type[NovaError]]

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        # Hosts of a cluster are near and reached without a proxy.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> Any:
        """The JSON document at a path.

        Raises:
            NovaError: of type `failure`, when nothing answers in time, or with an error.
        """
        return self.request("GET", path)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to a request; see `get` for errors."""
        where, data = f"{self.url}{path}", None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        try:
            request = urllib.request.Request(where, data, headers, method=method)
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                text = answer.read()
            return json.loads(text) if text else {}
        except urllib.error.HTTPError as error:
            reason = self.reason(_text(error))
            what = f"{error.code}: {reason}" if reason else f"HTTP {error.code} {error.reason}"
            raise self.failure(f"{where}: {what}") from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise self.failure(
                f"{self.url}: no answer from {self.server} ({why}); is it up?"
            ) from error
        except (ValueError, RecursionError) as error:
            raise self.failure(f"{where}: not {self.engine}'s REST interface: {error}") from error

    def reason(self, text: str) -> str:
        """The reason that the text of a refusal gives, in a line; empty where it gives none."""
        return text.partition("\n")[0][:QUOTED]


def _text(error: urllib.error.HTTPError) -> str:
    try:
        return error.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ""
