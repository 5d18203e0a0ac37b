"""Where an API is, and where its key comes from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import attrs

from yiemagent.errors import ConfigurationError
from yiemagent.record import Record

__all__ = ["Endpoint", "Key", "first_set", "host_of", "same_server"]


class Key(NamedTuple):
    """A key and where it came from, in words; both None where there is none."""

    key: str | None = None
    source: str | None = None


@attrs.frozen(eq=False, repr=False)
class Endpoint(Record):
    """Where an API is, and where its key comes from.

    Args:
        provider: the name that messages carry, and that `get_api_key` is asked with.
        base_url: of the provider's own server.
        key_variables: environment variables that may hold the key; the first that is set counts.
        base_url_variables: those that may name another server.
        needs_key: whether the own server can't be asked without a key.
    """

    provider: str
    base_url: str
    key_variables: tuple[str, ...] = ()
    base_url_variables: tuple[str, ...] = ()
    needs_key: bool = True


def first_set(variables: Sequence[str]) -> str | None:
    """Give the value of the first of these environment variables that is set and not empty."""
    return next((value for name in variables if (value := os.environ.get(name))), None)


def host_of(base_url: str) -> str:
    """Give the host that a base URL names.

    Raises:
        ConfigurationError: the base URL is none.
    """
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:  # brackets or a port that are none
        raise ConfigurationError(f"base_url is malformed: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise ConfigurationError("base_url must begin with http:// or https:// and name a host")
    return host


def same_server(url: str, other: str) -> bool:
    """Whether two URLs have scheme, host and port in common."""
    one, two = urlsplit(url), urlsplit(other)
    return (one.scheme, one.hostname, one.port) == (two.scheme, two.hostname, two.port)
