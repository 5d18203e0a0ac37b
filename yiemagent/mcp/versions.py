"""The published versions of MCP, the two eras that they form, and the words that belong to each.

The *handshake* era (2024-11-05 to 2025-11-25) opens a connection with `initialize` and keeps a session. The *stateless*
era (2026-07-28) has neither: every request says in `params._meta` what it needs to be understood, and `server/discover`
tells what a server can do. Facts from the specification, "Versioning" and "Lifecycle" of each version.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "CLIENT_CAPABILITIES_META",
    "CLIENT_INFO_META",
    "HANDSHAKE_VERSIONS",
    "HEADER_MISMATCH",
    "LATEST_HANDSHAKE",
    "LATEST_STATELESS",
    "LOG_LEVELS",
    "LOG_LEVEL_META",
    "MISSING_CAPABILITY",
    "PROTOCOL_VERSION_META",
    "SERVER_INFO_META",
    "STATELESS_VERSIONS",
    "SUBSCRIPTION_ID_META",
    "UNSUPPORTED_VERSION",
    "is_stateless",
    "newest_common",
]

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first; these are agreed on by `initialize`."""
STATELESS_VERSIONS = ("2026-07-28",)
"""Newest first; these are named in every request."""
LATEST_HANDSHAKE = HANDSHAKE_VERSIONS[0]
LATEST_STATELESS = STATELESS_VERSIONS[0]

# Keys of `_meta` in the stateless era (specification 2026-07-28, "Base Protocol", reserved keys).
PROTOCOL_VERSION_META = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES_META = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_META = "io.modelcontextprotocol/clientInfo"
SERVER_INFO_META = "io.modelcontextprotocol/serverInfo"
LOG_LEVEL_META = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID_META = "io.modelcontextprotocol/subscriptionId"

# Error codes of the stateless era.
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

LOG_LEVELS = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""Least severe first (RFC 5424)."""


def is_stateless(version: str) -> bool:
    """Whether a version belongs to the stateless era; dates order the versions, so later ones do too."""
    return version >= STATELESS_VERSIONS[-1]


def newest_common(ours: Iterable[str], theirs: Iterable[str]) -> str | None:
    """Give the newest version that both sides speak, or None."""
    return max(set(ours) & set(theirs), default=None)
