"""Who may speak to a server over HTTP."""

from __future__ import annotations

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.mcp.http_guard import HttpGuard
from yiemagent.mcp.http_wire import HttpRefusal


def guard(token=None, port=3983, hosts=(), origins=()):
    """A guard."""
    return HttpGuard(hosts, origins, token, port)


def status_of(made, **headers):
    """The status by which it refuses; None where it admits."""
    try:
        made.admit(headers)
    except HttpRefusal as refusal:
        return refusal.status
    return None


@pytest.mark.parametrize(
    "host", ["127.0.0.1:3983", "localhost:3983", "LOCALHOST:3983", "[::1]:3983", "tools.example"]
)
def test_the_server_goes_by_its_own_names(host):
    """Loopback names with the port, and what the user named, whatever the case."""
    assert status_of(guard(hosts=["Tools.Example"]), host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:3983.evil.com",
        "localhost:evil.com",
        "127.0.0.1",
        "localhost:80",
        "evil.com",
        "evil.com:3983",
        "localhost:3983@evil.com",
        "localhost:39830",
        "127.0.0.1:3983/",
        "",
        None,
    ],
)
def test_any_other_host_is_refused(host):
    """Names are compared as a whole, so that one which only begins like ours is another's."""
    headers = {} if host is None else {"host": host}

    assert status_of(guard(), **headers) == 421


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3983", None),
        ("http://127.0.0.1:3983", None),
        ("https://app.example", None),
        ("http://localhost:3983.evil.com", 403),
        ("http://localhost:evil.com", 403),
        ("https://localhost:3983", 403),
        ("http://evil.com", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_pages_are_known_by_their_origin(origin, status):
    """Only this server's own pages and the ones that the user named may use it."""
    made = guard(origins=["https://App.example"])

    assert status_of(made, host="localhost:3983", origin=origin) == status


def test_on_port_80_the_port_is_left_out():
    """Clients leave it out of the Host there."""
    assert status_of(guard(port=80), host="localhost") is None


def owner(made, authorization):
    """The owner of a request."""
    return made.admit({"host": "localhost:3983", "authorization": authorization})


def test_a_token_names_its_owner():
    """One token is the client's; several belong to whoever they are named for."""
    several = guard({"ann": "secret-ann", "bob": "secret-böb"})

    assert owner(guard("a-long-secret"), "Bearer a-long-secret") == "client"
    assert owner(several, "bearer  secret-ann") == "ann"
    assert owner(several, "Bearer " + "secret-böb".encode().decode("latin-1")) == "bob"
    assert guard().admit({"host": "localhost:3983"}) is None


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", "Basic a-long-secret", "a-long-secret"]
)
def test_without_the_token_nothing_is_admitted(authorization):
    """The refusal says what is needed and nothing of the token."""
    with pytest.raises(HttpRefusal) as refusal:
        owner(guard("a-long-secret"), authorization)

    assert refusal.value.status == 401
    assert refusal.value.headers["WWW-Authenticate"].startswith("Bearer")
    assert "a-long-secret" not in repr(refusal.value)


def test_a_token_that_is_none_is_refused_at_the_start():
    """An empty variable must not open the server to everybody."""
    for token in ("", "short", {"ann": ""}):
        with pytest.raises(ConfigurationError, match="token"):
            guard(token)
