"""What a client does for servers when they ask: elicitation, sampling and roots, each only where there is a handler.

A handler is user code on a thread of the caller or of the client's pool; it may take as long as a person needs. What a
server asks is data of the server's and not to be trusted: nothing is opened, filled in or sent without the handler.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from yiemagent.errors import ConfigurationError, McpProtocolError
from yiemagent.mcp.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from yiemagent.payload import thaw_json

__all__ = ["ElicitationHandler", "Roots", "SamplingHandler", "ServerRequests"]

ElicitationHandler: TypeAlias = Callable[[dict[str, Any]], Any]
SamplingHandler: TypeAlias = Callable[[dict[str, Any]], Any]
Root: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any]"
Roots: TypeAlias = "str | os.PathLike[str] | Iterable[Root] | Callable[[], Iterable[Root]]"

_ACTIONS = {"accept", "decline", "cancel"}


class ServerRequests:
    """The handlers of one client.

    Args:
        elicitation: is given the params of a wish for input (`message`, `requestedSchema`) and gives the values as a
            dict, or None to decline, or a whole result (`{"action": "accept" | "decline" | "cancel", "content": …}`).
            Values that it leaves out get the schema's defaults.
        elicitation_url: is given the params of a wish to visit a page (`message`, `url`) and gives whether the user
            agreed. It opens the page itself, if anybody does.
        sampling: is given the params of a wish for a model's answer and gives the answer as text or as a whole result.
        roots: folders that servers may work in: one or more paths or URIs, or a function that gives them.

    Raises:
        ConfigurationError: a handler can't be called.
    """

    def __init__(
        self,
        *,
        elicitation: ElicitationHandler | None = None,
        elicitation_url: Callable[[dict[str, Any]], Any] | None = None,
        sampling: SamplingHandler | None = None,
        roots: Roots | None = None,
    ) -> None:
        handlers = {
            "elicitation": elicitation,
            "elicitation_url": elicitation_url,
            "sampling": sampling,
        }
        for name, handler in handlers.items():
            if handler is not None and not callable(handler):
                raise ConfigurationError(
                    f"{name} must be a function of the params, not {handler!r}"
                )
        self._form, self._url = elicitation, elicitation_url
        self._sampling = sampling
        if isinstance(roots, (str, os.PathLike)):
            roots = (roots,)
        self._roots = roots if roots is None or callable(roots) else tuple(roots)

    @property
    def capabilities(self) -> dict[str, Any]:
        """What servers are told: what there is a handler for, and nothing else."""
        found: dict[str, Any] = {}
        if self._form or self._url:
            modes = {"form": self._form, "url": self._url}
            found["elicitation"] = {mode: {} for mode, handler in modes.items() if handler}
        if self._sampling:
            found["sampling"] = {}
        if self._roots is not None:
            found["roots"] = {}
        return found

    def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Give the result of what a server asks; runs a handler.

        Raises:
            McpProtocolError: there is no handler, or nothing that it can be asked.
            Exception: whatever the handler raises.
        """
        own: dict[str, Any] = thaw_json(dict(params))
        if method == "elicitation/create":
            return self._elicit(own)
        if method == "sampling/createMessage" and self._sampling:
            return _sampled(self._sampling(own))
        if method == "roots/list" and self._roots is not None:
            given = self._roots() if callable(self._roots) else self._roots
            return {"roots": [_root(root) for root in given]}
        raise McpProtocolError(
            f"the server asks for {method}, which this client does not offer", METHOD_NOT_FOUND
        )

    def _elicit(self, params: dict[str, Any]) -> dict[str, Any]:
        mode = params.get("mode") or "form"
        if mode == "form" and self._form:
            return _elicited(self._form(thaw_json(params)), params.get("requestedSchema"))
        if mode == "url" and self._url:
            agreed = self._url(params)
            return agreed if _is_result(agreed) else {"action": "accept" if agreed else "decline"}
        code = INVALID_PARAMS if self._form or self._url else METHOD_NOT_FOUND
        raise McpProtocolError(
            f"the server asks for elicitation by {mode!r:.40}, which this client does not offer",
            code,
        )


def _is_result(given: Any) -> bool:
    return (
        isinstance(given, dict)
        and given.get("action") in _ACTIONS
        and set(given) <= {"action", "content", "_meta"}
    )


def _elicited(given: Any, schema: Any) -> dict[str, Any]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    if given is None or given is False:
        return {"action": "decline"}
    if "action" in properties or not _is_result(given):
        given = {"action": "accept", "content": {} if given is True else given}
    if given["action"] != "accept":
        return {"action": given["action"]}
    content = given.get("content") or {}
    if not isinstance(content, Mapping):
        raise McpProtocolError(
            f"the elicitation handler gave {given!r:.100}, no dict of values", INTERNAL_ERROR
        )
    defaults = {
        name: field["default"]
        for name, field in properties.items()
        if isinstance(field, dict) and "default" in field
    }
    return {"action": "accept", "content": {**defaults, **content}}


def _sampled(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, str):
        raise McpProtocolError(
            f"the sampling handler gave {given!r:.100}, neither text nor a result", INTERNAL_ERROR
        )
    content = {"type": "text", "text": given}
    return {"role": "assistant", "content": content, "model": "unknown", "stopReason": "endTurn"}


def _root(root: Root) -> dict[str, Any]:
    if isinstance(root, Mapping):
        return dict(root)
    if isinstance(root, str) and "://" in root:
        return {"uri": root}
    path = pathlib.Path(root).resolve()
    return {"uri": path.as_uri(), "name": path.name}
