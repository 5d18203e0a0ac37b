"""The `mcpServers` JSON that people have, read as it is."""

from __future__ import annotations

import json

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.mcp.config import find_server, load_servers, read_servers
from yiemagent.mcp.dialers import StdioServer
from yiemagent.mcp.http_server import HttpServer
from yiemagent.mcp.nats import NatsServer

ENV = {"HOME": "/home/me", "TOKEN": "hush", "EMPTY": ""}


def read(entry, **options):
    """The server that one entry gives."""
    return read_servers({"mcpServers": {"it": entry}}, env=ENV, **options)["it"]


def problem(data, **options):
    """What is wrong with a config, in words."""
    with pytest.raises(ConfigurationError) as failure:
        read_servers(data, env=ENV, **options)
    return str(failure.value)


def wrong(entry):
    """What is wrong with an entry, in words."""
    return problem({"mcpServers": {"it": entry}}, where="x.json")


def test_a_file_is_read_as_it_is(tmp_path):
    """Commands and addresses come in their order, with what other programs keep there passed over."""
    file = tmp_path / "mcp.json"
    config = {
        "theme": "dark",
        "mcpServers": {
            "files": {"command": "npx", "args": ["-y", "files", "/tmp"], "alwaysAllow": ["read"]},
            "wiki": {"type": "http", "url": "https://example.com/mcp", "timeout": 60},
            "bus": {"url": "nats://127.0.0.1:4222/tools.bus"},
            "off": {"command": "x", "disabled": True},
            "out": {"command": "x", "enabled": False},
        },
    }
    file.write_text(json.dumps(config), encoding="utf-8-sig")
    servers = load_servers(file)

    assert list(servers) == ["files", "wiki", "bus"]
    assert servers["files"].command == ("npx", "-y", "files", "/tmp")
    assert (servers["wiki"].url, servers["wiki"].ways) == ("https://example.com/mcp", ("http",))
    assert servers["bus"].subject == "tools.bus"


def test_a_command_has_its_environment_and_folder():
    """`env` and `cwd` are the server's; numbers there are texts."""
    server = read({"command": "a b", "env": {"A": "1", "PORT": 80, "ON": True}, "cwd": "/srv"})

    assert isinstance(server, StdioServer)
    assert server.command == ("a b",)  # a program's name may hold a space
    assert (server.env, server.cwd) == ({"A": "1", "PORT": "80", "ON": "true"}, "/srv")


@pytest.mark.parametrize(
    "entry, ways",
    [
        ({"url": "http://h/mcp"}, ("http", "sse")),
        ({"url": "http://h/mcp", "type": "streamable-http"}, ("http",)),
        ({"url": "http://h/mcp", "type": "streamableHttp"}, ("http",)),
        ({"serverUrl": "http://h/mcp", "transport": "sse"}, ("sse",)),
        ({"httpUrl": "http://h/mcp"}, ("http", "sse")),
    ],
)
def test_an_address_is_reached_in_the_way_that_is_named(entry, ways):
    """Each program's word for a transport is known; without one all are tried."""
    server = read(entry)

    assert isinstance(server, HttpServer)
    assert server.ways == ways


def test_nats_is_named_by_its_address_or_type():
    """A subject on NATS is a server like others."""
    assert isinstance(read({"url": "tls://h:4222/a.b"}), NatsServer)
    assert read({"type": "nats", "url": "nats://h/a.b?plain=1"}).plain


@pytest.mark.parametrize(
    "given, expanded",
    [
        ("${HOME}/notes", "/home/me/notes"),
        ("${env:HOME}", "/home/me"),
        ("${NONE:-there}", "there"),
        ("${EMPTY:-there}", "there"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${HOME}${HOME}", "/home/me/home/me"),
        ("$HOME ~ $5 {HOME}", "$HOME ~ $5 {HOME}"),
    ],
)
def test_variables_are_expanded_in_every_text(given, expanded):
    """`${NAME}` and `${NAME:-otherwise}` are, and nothing else is."""
    server = read({"command": f"c{given}", "args": [given], "env": {"A": given}, "cwd": given})

    assert server.command == (f"c{expanded}", expanded)
    assert (server.env, server.cwd) == ({"A": expanded}, expanded)


def test_headers_and_addresses_are_expanded():
    """A token comes from the environment, and a host may."""
    server = read({"url": "http://${HOST:-h}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}})

    assert server.url == "http://h/mcp"
    assert server._headers == {"Authorization": "Bearer hush"}
    assert "hush" not in repr(server)


def test_the_environment_is_the_programs_own_by_default(monkeypatch):
    """Without `env=` the process's variables count."""
    monkeypatch.setenv("YIEMAGENT_TEST_WORD", "word")
    [server] = read_servers({"mcpServers": {"a": {"command": "${YIEMAGENT_TEST_WORD}"}}}).values()

    assert server.command == ("word",)


@pytest.mark.parametrize(
    "entry, key, words",
    [
        ({}, "", "no command and no url"),
        ({"command": "", "url": ""}, "", "no command and no url"),
        ({"command": "a", "url": "http://h"}, "", "both a command and a url"),
        ([], "", "must be an object, not list"),
        ({"command": ["a"]}, ".command", "must be text, not list"),
        ({"command": "a", "args": "b"}, ".args", "list of texts"),
        ({"command": "a", "args": ["b", 5]}, ".args[1]", "must be text, not int"),
        ({"command": "a", "args": ["${NONE}"]}, ".args[0]", "variable NONE is not set"),
        ({"command": "a", "env": ["b"]}, ".env", "object of texts"),
        ({"command": "a", "env": {"K": ["hush"]}}, ".env.K", "must be text, not list"),
        ({"command": "a", "cwd": 5}, ".cwd", "must be text"),
        ({"command": "a", "type": "http"}, ".type", "'http' needs a url"),
        ({"url": "http://h", "type": "stdio"}, ".type", "'stdio' needs a command"),
        ({"url": "http://h", "type": "ws"}, ".type", "'ws' is none of"),
        ({"url": "http://h", "transport": 5}, ".transport", "5 is none of"),
        ({"url": "ftp://h"}, "", "begins with http"),
        ({"url": "nats://h"}, "", "names its subject"),
        ({"url": "http://h", "headers": {"A": None}}, ".headers.A", "must be text, not NoneType"),
        ({"url": "http://${input:host}"}, ".url", "${input:host} is not known"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(entry, key, words):
    """An error names the file, the key and what was expected, and no secret."""
    told = wrong(entry)

    assert told.startswith(f"x.json: mcpServers.it{key}: ")
    assert words in told
    assert "hush" not in told


@pytest.mark.parametrize("data", [[], {}, {"mcpservers": {}}, {"mcpServers": []}])
def test_what_holds_no_servers_is_told(data):
    """Without servers by name it is no such file."""
    assert problem(data, where="x.json").startswith("x.json: ")


def test_the_other_name_for_servers_is_taken():
    """Some programs say `servers`."""
    assert list(read_servers({"servers": {"a": {"command": "x"}}})) == ["a"]


@pytest.mark.parametrize("content", [None, b"{", b"\xff", b"[" * 100_000])
def test_a_file_that_cant_be_read_is_named(tmp_path, content):
    """A missing file, broken JSON, other bytes and endless nesting name the path."""
    file = tmp_path / "mcp.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"mcp\.json"):
        load_servers(file)


# -- what a command line names ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The present folder, with a file of servers."""
    monkeypatch.delenv("YIEMAGENT_MCP_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    servers = {"mine": {"command": "run"}, "other": {"command": "${NOT_SET}"}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_name_is_looked_up_in_the_present_folder():
    """The entry is read, and what another one lacks does not matter."""
    name, server = find_server("mine")

    assert (name, server.command) == ("mine", ("run",))
    with pytest.raises(ConfigurationError, match="NOT_SET"):
        find_server("other")


def test_a_file_may_be_named(folder, monkeypatch):
    """By an argument, or by a variable; the argument counts first."""
    (folder / "a.json").write_text('{"mcpServers": {"x": {"command": "a"}}}')
    (folder / "b.json").write_text('{"mcpServers": {"x": {"command": "b"}}}')
    monkeypatch.setenv("YIEMAGENT_MCP_CONFIG", str(folder / "b.json"))

    assert find_server("x")[1].command == ("b",)
    assert find_server("x", folder / "a.json")[1].command == ("a",)


def test_a_name_may_look_like_a_command(folder):
    """Names have blanks and slashes, too; and what is a command needs no file that can be read."""
    servers = {"My Files": {"command": "a"}, "github.com/me/files": {"command": "b"}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))

    assert find_server("My Files")[0] == "My Files"
    assert find_server("github.com/me/files")[1].command == ("b",)
    (folder / ".mcp.json").write_text("{")
    assert find_server("node server.js")[1].command == ("node", "server.js")
    with pytest.raises(ConfigurationError, match="is no JSON"):
        find_server("node server.js", folder / ".mcp.json")


@pytest.mark.usefixtures("folder")
def test_addresses_and_commands_are_servers():
    """What is no name is dialled or started."""
    assert find_server("http://h/mcp")[1].url == "http://h/mcp"
    assert find_server("nats://h/a.b")[1].subject == "a.b"
    assert find_server("node server.js")[1].command == ("node", "server.js")
    assert find_server("sh")[0] is None
    assert find_server("./server --fast")[1].command == ("./server", "--fast")


def test_what_names_nothing_is_told(folder):
    """The error says where was looked."""
    with pytest.raises(ConfigurationError, match=r"no-such-server-anywhere.*\.mcp\.json"):
        find_server("no-such-server-anywhere")
    (folder / ".mcp.json").unlink()
    with pytest.raises(ConfigurationError, match="no address and no program"):
        find_server("no-such-server-anywhere")
