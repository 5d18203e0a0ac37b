"""The client of a server that listens to a NATS subject, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yiemagent.mcp.client import McpClient
from yiemagent.mcp.nats import NatsRequester, NatsServer

__all__ = ["nats_mcp_server"]


def nats_mcp_server(
    requester: NatsRequester | str | Sequence[str],
    subject: str,
    *,
    plain: bool = False,
    **options: Any,
) -> McpClient:
    """Give the client of a server that listens to a subject, as `YiemAgent(mcp_server=…)` takes it.

    Args:
        requester: what carries requests, or the address of a NATS server, or several; see `NatsServer`.
        subject: where the server listens.
        plain: see `NatsServer`.
        options: of `McpClient`.

    Raises:
        ConfigurationError: an argument makes no sense.
    """
    return McpClient(NatsServer(subject, requester, plain=plain), **options)
