"""What a server needs to know again when a request is asked anew, sealed so that only it can have written it; no I/O.

The state goes through the client, who may change it or send it with another request, for another user, or a year later.
So it is signed (HMAC-SHA256) together with whom and what it is for, and for how long. Facts from the specification
2026-07-28, "Multi Round-Trip Requests", "Server Requirements".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from yiemagent.mcp.jsonrpc import INVALID_PARAMS
from yiemagent.mcp.server_protocol import RpcFailure

__all__ = ["StateSeal"]

_SIGNATURE_BYTES = 32


class StateSeal:
    """Seals and opens states; safe to use from any thread.

    Args:
        key: what the signatures are made with; servers that share their work share it. None: one of its own.
        max_age_s: seconds for which a state can be used.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        key: bytes | None = None,
        *,
        max_age_s: float = 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = key if key is not None else secrets.token_bytes(32)
        self._max_age_s = max_age_s
        self._clock = clock

    def seal(self, facts: Mapping[str, Any], *, about: str, principal: str | None) -> str:
        """Give facts as a state.

        Args:
            facts: JSON.
            about: which request they belong to.
            principal: whose request it is, or None.
        """
        body = {"facts": facts, "until": self._clock() + self._max_age_s}
        data = json.dumps(body, separators=(",", ":")).encode()
        signature = self._signature(data, about, principal)
        return base64.urlsafe_b64encode(signature + data).decode("ascii").rstrip("=")

    def open(self, state: Any, *, about: str, principal: str | None) -> dict[str, Any]:
        """Give the facts of a state.

        Raises:
            RpcFailure: it was not sealed here, for this request and this principal, or it is too old.
        """
        data = self._verified(state, about, principal)
        if data is None:
            raise RpcFailure(INVALID_PARAMS, "the requestState is not what this server gave")
        body: dict[str, Any] = json.loads(data)
        if body["until"] < self._clock():
            raise RpcFailure(INVALID_PARAMS, "the requestState is too old; ask anew without it")
        facts: dict[str, Any] = body["facts"]
        return facts

    def _verified(self, state: Any, about: str, principal: str | None) -> bytes | None:
        if not isinstance(state, str):
            return None
        try:
            raw = base64.b64decode(state + "=" * (-len(state) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        signature, data = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        wanted = self._signature(data, about, principal)
        return data if hmac.compare_digest(signature, wanted) else None

    def _signature(self, data: bytes, about: str, principal: str | None) -> bytes:
        scope = json.dumps([about, principal]).encode()
        return hmac.digest(self._key, scope + b"\0" + data, hashlib.sha256)
