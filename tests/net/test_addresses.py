"""Which addresses are connected to: public ones, and what the user allows."""

from __future__ import annotations

import socket

import pytest

from yiemagent.errors import ConfigurationError, HttpError
from yiemagent.net.addresses import guarded, is_public
from yiemagent.net.http import HttpClient
from yiemagent.testing import ScriptedServer


def resolver(*answers):
    """Give a resolver that gives one answer after another, each a list of addresses, and keeps the last."""
    left = list(answers)

    def resolve(host, port):
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [
            (
                socket.AF_INET6 if ":" in text else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (text, port),
            )
            for text in addresses
        ]

    return resolve


@pytest.mark.parametrize(
    "text", ["93.184.216.34", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808"]
)
def test_addresses_of_the_internet_are_public(text):
    """Ordinary addresses of both kinds are public."""
    assert is_public(text)


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "127.255.0.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "198.18.0.1",
        "192.0.2.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12:3456::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "no address",
        "",
    ],
)
def test_all_other_addresses_are_not(text):
    """Loopback, private, link-local, shared, reserved, multicast, and each of them inside of IPv6, are not public."""
    assert not is_public(text)


def test_a_public_name_resolves():
    """The addresses of a host come back as they are."""
    resolve = guarded(resolver=resolver(["93.184.216.34", "2606:4700:4700::1111"]))

    assert [address[4][0] for address in resolve("example.org", 443)] == [
        "93.184.216.34",
        "2606:4700:4700::1111",
    ]


def test_a_private_address_is_refused_even_beside_a_public_one():
    """A name with one address that is not public is refused, and the text says which."""
    resolve = guarded(resolver=resolver(["93.184.216.34", "10.0.0.7"]))
    with pytest.raises(HttpError, match=r"'evil.example' leads to 10.0.0.7"):
        resolve("evil.example", 80)


@pytest.mark.parametrize(
    "entry", ["10.0.0.0/8", "10.0.0.7", "inside.example", "INSIDE.example.", "inside.example:80"]
)
def test_what_is_allowed_is_not_refused(entry):
    """A network, an address, a name, and a name with its port each let a private address through."""
    resolve = guarded([entry], resolver(["10.0.0.7"]))

    assert resolve("inside.example", 80)[0][4][0] == "10.0.0.7"


@pytest.mark.parametrize("entry", ["192.168.0.0/16", "other.example", "inside.example:81", "::/0"])
def test_what_is_allowed_is_no_more_than_it_says(entry):
    """Another network, name, port or kind of address lets nothing through."""
    resolve = guarded([entry], resolver(["10.0.0.7"]))
    with pytest.raises(HttpError):
        resolve("inside.example", 80)


@pytest.mark.parametrize(
    "entry", ["", "*", "*.example", "http://x/", "host:port", ":80", "10.0.0.0/99"]
)
def test_what_names_no_host_is_refused(entry):
    """An entry that could mean anything is a configuration error."""
    with pytest.raises(ConfigurationError, match="names no host"):
        guarded([entry])


def test_each_connection_is_checked():
    """A name that is public at first and private at the next look (DNS rebinding) is refused at that look."""
    resolve = guarded(resolver=resolver(["93.184.216.34"], ["127.0.0.1"]))
    resolve("rebind.example", 80)
    with pytest.raises(HttpError, match="not public"):
        resolve("rebind.example", 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1"])
def test_no_spelling_of_this_machine_is_reached(host):
    """Whatever this machine is called in a URL, no request reaches it."""
    with ScriptedServer() as server:
        client = HttpClient(environ={}, resolver=guarded())
        with pytest.raises(HttpError, match="not public"):
            client.request("GET", f"http://{host}:{server.port}/")
        client.close()

        assert server.requests == []
