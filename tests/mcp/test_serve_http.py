"""A server over HTTP, in both eras, on real sockets."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading

import pytest

from tests.support.mcp_wire import HttpPeer, asked, events, initialize, stateless
from yiemagent.errors import ConfigurationError
from yiemagent.mcp.caller import current_caller
from yiemagent.mcp.offers import Resource
from yiemagent.mcp.serve_http import HttpServing
from yiemagent.mcp.server import McpServer
from yiemagent.registry import ToolStore
from yiemagent.tool import AgentTool

LISTS = ["tools/list", "resources/list", "resources/templates/list"]


def tool(name, execute, **options):
    """A tool that may run beside others."""
    return AgentTool(
        name, description="Does.", execute=execute, parallel_tool_execute=True, **options
    )


def tells(call_id, args, signal, partial):
    """Tell of progress."""
    partial({"progress": 1, "total": 2})
    return "done"


TOOLS = (
    tool("echo", lambda call_id, args, signal, partial: json.dumps(args)),
    tool("tell", tells),
    tool(
        "query",
        lambda call_id, args, signal, partial: args["region"],
        input_schema={
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        },
    ),
)


@contextlib.contextmanager
def serving(*tools, **options):
    """A server over HTTP."""
    store = ToolStore("test")
    for each in (*TOOLS, *tools):
        store.register(each)
    resources = [Resource("a:b", "b", read=lambda: "hi")]
    with (
        McpServer(store, resources=resources) as server,
        HttpServing(server, **options) as served,
    ):
        served.mcp = server
        yield served


@contextlib.contextmanager
def peer_of(*tools, **options):
    """A client of a server over HTTP."""
    with serving(*tools, **options) as served, HttpPeer(served) as peer:
        yield peer


def text(message):
    """The text of an answer."""
    return message["result"]["content"][0]["text"]


# -- the stateless era ------------------------------------------------------------------------------------------------


def test_a_stateless_request_is_answered_by_itself():
    """One connection serves any number of requests, none of which opens a session."""
    with peer_of() as peer:
        for number in range(3):
            status, [answer] = peer.stateless(
                stateless(number, "tools/call", name="echo", arguments={"n": number})
            )
            assert (status, answer["id"], text(answer)) == (200, number, f'{{"n": {number}}}')
        status, headers, _ = peer.ask(
            stateless(9, "server/discover"),
            Mcp_Method="server/discover",
            MCP_Protocol_Version="2026-07-28",
            Mcp_Session_Id="whatever",
        )

        assert status == 200
        assert "Mcp-Session-Id" not in headers
        assert headers["Content-Type"] == "application/json"


def test_progress_makes_it_a_stream():
    """What comes before the answer and the answer are events without numbers."""
    with peer_of() as peer:
        request = stateless(1, "tools/call", name="tell")
        request["params"]["_meta"]["progressToken"] = "p"
        response = peer.begin(
            request, Mcp_Method="tools/call", Mcp_Name="tell", MCP_Protocol_Version="2026-07-28"
        )
        came = events(response.read())

        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert [event["data"].get("method") for event in came] == ["notifications/progress", None]
        assert {event["id"] for event in came} == {None}
        assert peer.stateless(stateless(2, "tools/list"))[0] == 200


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("nothing/there", {}, 404, -32601),
        ("initialize", {}, 404, -32601),
        ("tools/call", {"name": "none"}, 400, -32602),
        ("resources/read", {"uri": "a:none"}, 400, -32602),
    ],
)
def test_errors_have_their_status(method, params, status, code):
    """A client can tell what is wrong by the status, and more by the body."""
    with peer_of() as peer:
        got, [answer] = peer.stateless(stateless(5, method, **params))

        assert (got, answer["error"]["code"], answer["id"]) == (status, code, 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": None},
        {"Mcp-Name": "tell"},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"MCP-Protocol-Version": None},
        {"Mcp-Param-Region": None},
        {"Mcp-Param-Region": "eu"},
    ],
)
def test_headers_must_repeat_the_body(wrong):
    """A missing or different one is refused with its own code."""
    with peer_of() as peer:
        message = stateless(5, "tools/call", name="query", arguments={"region": "us"})
        good, _ = peer.stateless(message, **{"Mcp-Param-Region": "us"})
        status, [answer] = peer.stateless(message, **{"Mcp-Param-Region": "us", **wrong})

        assert good == 200
        assert (status, answer["error"]["code"]) == (400, -32020)


def test_a_version_header_alone_makes_it_stateless():
    """A request that names the version in its header and not in its body is told what is missing."""
    with peer_of() as peer:
        status, [answer] = peer.stateless(asked(5, "server/discover"))

        assert (status, answer["error"]["code"]) == (400, -32602)


def test_a_client_that_hangs_up_cancels():
    """The call's signal is set when the connection ends."""
    began, cancelled = threading.Event(), threading.Event()

    def waits(call_id, args, signal, partial):
        began.set()
        if signal.wait(10):
            cancelled.set()

    with peer_of(tool("wait", waits)) as peer:
        peer.connection.request(
            "POST",
            "/mcp",
            json.dumps(stateless(1, "tools/call", name="wait")),
            {
                **peer.headers,
                "Mcp-Method": "tools/call",
                "Mcp-Name": "wait",
                "MCP-Protocol-Version": "2026-07-28",
            },
        )
        assert began.wait(10)
        peer.connection.close()

        assert cancelled.wait(10)


def test_changes_are_told_to_who_listens():
    """A subscription is a stream that begins with its acknowledgement and ends with the server."""
    with serving() as served, HttpPeer(served) as peer:
        message = stateless(7, "subscriptions/listen", notifications={"toolsListChanged": True})
        response = peer.begin(
            message, Mcp_Method="subscriptions/listen", MCP_Protocol_Version="2026-07-28"
        )
        acknowledged = read_event(response)
        served.mcp.store.register(tool("new", lambda *_: None))
        changed = read_event(response)
        served.close()
        ended = read_event(response)

        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert changed["method"] == "notifications/tools/list_changed"
        assert (ended["id"], ended["result"]["resultType"]) == (7, "complete")


def read_event(response):
    """Give the next event of a stream that has data."""
    while True:
        line = response.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: ") and line.strip() != b"data:":
            return json.loads(line[6:])


def test_a_silent_stream_is_kept_alive():
    """A call that takes long becomes a stream with comments."""
    gate = threading.Event()
    slow = tool("slow", lambda *_: gate.wait(10) and "done")
    with peer_of(slow, keep_alive_s=0.02) as peer:
        response = peer.begin(
            stateless(1, "tools/call", name="slow"),
            Mcp_Method="tools/call",
            Mcp_Name="slow",
            MCP_Protocol_Version="2026-07-28",
        )
        comments = [response.readline() for _ in range(4)]
        gate.set()

        assert response.headers["Content-Type"] == "text/event-stream"
        assert comments == [b": keep-alive\n", b"\n"] * 2
        assert text(read_event(response)) == "done"


def test_a_notification_is_accepted_and_an_answer_is_not():
    """The stateless era has no server requests, so nothing can be answered."""
    with peer_of() as peer:
        version = {"MCP-Protocol-Version": "2026-07-28"}
        said, _, nothing = peer.ask(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}, **version
        )
        answered, _, _ = peer.ask({"jsonrpc": "2.0", "id": 1, "result": {}}, **version)

        assert (said, nothing, answered) == (202, [], 400)


# -- the handshake era ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
def test_a_session_is_opened_used_and_ended(version):
    """Its id is needed from then on, and is worth nothing after its end."""
    with peer_of() as peer:
        opened = peer.shake_hands(version)
        status, _, [listed] = peer.ask(asked(1, "tools/list"))
        ended = peer.ask(None, "DELETE")[0]
        after = peer.ask(asked(2, "tools/list"))
        again = peer.ask(None, "DELETE")[0]

        assert opened["result"]["protocolVersion"] == version
        assert (status, len(listed["result"]["tools"])) == (200, 3)
        assert (ended, after[0], again) == (204, 404, 404)


def test_without_a_session_there_is_only_initialize():
    """A request without its id is a bad request; so is one with a version that has no sessions."""
    with peer_of() as peer:
        status, _, [answer] = peer.ask(asked(1, "tools/list"))
        peer.shake_hands()
        wrong, _, _ = peer.ask(asked(1, "tools/list"), MCP_Protocol_Version="1999-01-01")

        assert (status, "initialize" in answer["error"]["message"]) == (400, True)
        assert wrong == 400


def test_an_initialize_that_fails_opens_nothing():
    """Without a version there is no session."""
    with peer_of() as peer:
        status, headers, [answer] = peer.ask(asked(1, "initialize"))

        assert (status, answer["error"]["code"]) == (200, -32602)
        assert "Mcp-Session-Id" not in headers


def test_a_session_belongs_to_whoever_opened_it():
    """With another's token it is not there."""
    tokens = {"ann": "secret-ann", "bob": "secret-bob"}
    with serving(token=tokens) as served:
        with HttpPeer(served, Authorization="Bearer secret-ann") as ann:
            ann.shake_hands()
            with HttpPeer(served, **{**ann.headers, "Authorization": "Bearer secret-bob"}) as bob:
                stolen = bob.ask(asked(1, "tools/list"))[0]
                ended = bob.ask(None, "DELETE")[0]

            assert (stolen, ended) == (404, 404)
            assert ann.ask(asked(1, "tools/list"))[0] == 200
        with HttpPeer(served) as nobody:
            status, headers, _ = nobody.ask(initialize())

            assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="mcp"')


def test_a_call_is_a_stream_that_can_be_resumed():
    """It begins with an event without data, whose number is enough to come back for the rest."""
    gate = threading.Event()

    def slow(call_id, args, signal, partial):
        gate.wait(10)
        return "aborted" if signal.aborted else "done"

    with serving(tool("slow", slow)) as served, HttpPeer(served) as peer:
        peer.shake_hands()
        response = peer.begin(asked(1, "tools/call", name="slow"))
        primed = [response.readline() for _ in range(4)]
        peer.connection.close()
        response.close()
        gate.set()
        number = primed[0].removeprefix(b"id: ").strip().decode()
        [answer] = peer.ask(None, "GET", Last_Event_ID=number)[2]

        assert primed[1:] == [b"retry: 1000\n", b"data: \n", b"\n"]
        assert (answer["id"], text(answer)) == (1, "done")
        assert peer.ask(None, "GET", Last_Event_ID="9/9")[0] == 404


def test_a_tool_may_have_its_client_come_back():
    """The stream ends without an answer, which is there for the next connection."""
    gate = threading.Event()

    def interrupts(call_id, args, signal, partial):
        current_caller().interrupt()
        gate.wait(10)
        return "done"

    with peer_of(tool("interrupt", interrupts)) as peer:
        peer.shake_hands()
        response = peer.begin(asked(1, "tools/call", name="interrupt"))
        [primed] = events(response.read())
        gate.set()
        answers = peer.ask(None, "GET", Last_Event_ID=primed["id"])[2]

        assert (primed["data"], primed["retry"]) == (None, "1000")
        assert text(answers[0]) == "done"


def test_older_clients_get_no_empty_events():
    """Before 2025-11-25 a stream begins with what there is to say."""
    with peer_of() as peer:
        peer.shake_hands("2025-06-18")
        response = peer.begin(asked(1, "tools/call", name="echo"))

        assert [event["data"]["id"] for event in events(response.read())] == [1]


def test_questions_to_the_client_go_by_the_stream_of_their_call():
    """The client answers by a request of its own, which is accepted."""

    def asks(call_id, args, signal, partial):
        answer = current_caller().ask({"r": {"method": "roots/list"}})["r"]
        return str(len(answer["roots"]))

    with serving(tool("ask", asks)) as served, HttpPeer(served) as peer:
        peer.shake_hands(capabilities={"roots": {}})
        response = peer.begin(asked(1, "tools/call", name="ask"))
        question = read_event(response)
        with HttpPeer(served, **peer.headers) as second:
            answered = second.ask(
                {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "a:b"}]}}
            )[0]

        assert question["method"] == "roots/list"
        assert answered == 202
        assert text(read_event(response)) == "1"


def test_what_belongs_to_no_request_goes_by_the_clients_get():
    """One such stream at a time; what came before it was opened is there."""
    with serving() as served, HttpPeer(served) as peer:
        peer.shake_hands()
        served.mcp.store.register(tool("new", lambda *_: None))
        response = peer.begin(None, "GET")
        changed = read_event(response)
        with HttpPeer(served, **peer.headers) as second:
            status = second.ask(None, "GET")[0]

        assert changed["method"] == "notifications/tools/list_changed"
        assert status == 409


def test_a_cancelled_call_ends_its_stream():
    """The stream ends without an answer, and the notification is accepted."""
    began = threading.Event()

    def waits(call_id, args, signal, partial):
        began.set()
        signal.wait(10)

    with serving(tool("wait", waits)) as served, HttpPeer(served) as peer:
        peer.shake_hands()
        response = peer.begin(asked(1, "tools/call", name="wait"))
        assert began.wait(10)
        with HttpPeer(served, **peer.headers) as second:
            cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
            status = second.ask({"jsonrpc": "2.0", **cancel})[0]

        assert status == 202
        assert [event["data"] for event in events(response.read())] == [None]


def test_batches_belong_to_one_version():
    """Where they do, each request in it is answered; elsewhere a batch is refused."""
    batch = json.dumps(
        [
            asked(1, "tools/list"),
            {"jsonrpc": "2.0", "method": "notifications/x"},
            asked(2, "ping"),
            {"jsonrpc": "2.0", "id": 3, "method": 5},
        ]
    ).encode()
    with serving() as served:
        with HttpPeer(served) as peer:
            peer.shake_hands("2025-03-26")
            answers = peer.ask(batch)[2]
        with HttpPeer(served) as peer:
            peer.shake_hands("2025-11-25")
            refused = peer.ask(batch)[0]

        assert sorted(answer["id"] for answer in answers) == [1, 2, 3]
        assert refused == 400


@pytest.mark.parametrize("method", [*LISTS, "ping", "resources/read", "prompts/list"])
def test_what_says_nothing_before_its_answer_is_json(method):
    """Only calls of tools are streams from the start."""
    with peer_of() as peer:
        peer.shake_hands()
        status, headers, [answer] = peer.ask(asked(1, method, uri="a:b"))

        assert (status, headers["Content-Type"], answer["id"]) == (200, "application/json", 1)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        ({"method": "PUT"}, 405),
        ({"method": "GET"}, 405),
        ({"method": "DELETE"}, 405),
        ({"path": "/other"}, 404),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": None}, 415),
        ({"Accept": "application/json"}, 406),
        ({"Accept": "text/event-stream"}, 406),
        ({"Accept": None}, 406),
        ({"Host": "127.0.0.1:{port}.evil.com"}, 421),
        ({"Host": "localhost:evil.com"}, 421),
        ({"Origin": "http://evil.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"message": b"hello"}, 400),
        ({"message": b""}, 400),
        ({"message": b"[1]"}, 400),
        ({"message": b'{"jsonrpc":"2.0","id":5,"method":5}'}, 400),
        ({"message": b"x" * 5000}, 413),
    ],
)
def test_a_request_of_another_form_is_refused(request_of, status):
    """Each with its status and a JSON-RPC error, and the next request is served."""
    with peer_of(max_body_bytes=2000) as peer:
        options = {"message": stateless(1, "tools/list"), **request_of}
        if "Host" in options:
            options["Host"] = options["Host"].format(port=peer.serving.port)
        got, headers, [answer] = peer.ask(options.pop("message"), **options)

        assert got == status
        assert answer["error"]["message"]
        assert headers.get("Allow") == ("POST" if status == 405 else None)
        assert peer.stateless(stateless(2, "tools/list"))[0] == 200


def test_a_wildcard_accepts_everything():
    """Simple clients say `*/*`."""
    with peer_of() as peer:
        assert peer.stateless(stateless(1, "tools/list"), Accept="text/*, application/*")[0] == 200
        assert peer.stateless(stateless(1, "tools/list"), Accept="*/*;q=0.8")[0] == 200


def test_a_get_must_accept_a_stream():
    """Within a session, too."""
    with peer_of() as peer:
        peer.shake_hands()

        assert peer.ask(None, "GET", Accept="application/json")[0] == 406


def raw(served, data):
    """Send bytes and give what comes back until the end."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        came = b""
        while piece := sock.recv(65536):
            came += piece
        return came


def test_a_large_body_is_refused_before_it_is_sent():
    """A client that asks first is told at once; one that may send is told to."""
    big = b"POST /mcp HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\n"
    big += b"Accept: */*\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n%s"
    body = json.dumps(initialize()).encode()
    with serving(max_body_bytes=1000) as served:
        refused = raw(served, big % (served.port, 5000, b""))
        taken = raw(served, big % (served.port, len(body), body))

        assert refused.startswith(b"HTTP/1.1 413")
        assert taken.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


def test_old_clients_get_a_stream_that_ends_with_the_connection():
    """HTTP/1.0 has no chunks."""
    message = stateless(1, "tools/call", name="tell")
    message["params"]["_meta"]["progressToken"] = 1
    body = json.dumps(message).encode()
    head = "POST /mcp HTTP/1.0\r\nHost: localhost:{}\r\nContent-Type: application/json\r\n"
    head += "Accept: */*\r\nContent-Length: {}\r\nMCP-Protocol-Version: 2026-07-28\r\n"
    head += "Mcp-Method: tools/call\r\nMcp-Name: tell\r\n\r\n"
    with serving() as served, socket.create_connection(("127.0.0.1", served.port)) as sock:
        sock.settimeout(10)
        sock.sendall(head.format(served.port, len(body)).encode() + body)
        with sock.makefile("rb") as reader:
            came = reader.read()

        assert b"Transfer-Encoding" not in came
        assert b"Connection: close" in came
        assert len(events(came.partition(b"\r\n\r\n")[2])) == 2


def test_what_is_no_http_is_refused():
    """The connection ends with the refusal."""
    with serving() as served:
        assert raw(served, b"hello\r\n\r\n").startswith(b"HTTP/1.1 400")
        assert raw(served, b"") == b""


def test_there_is_an_end_of_connections():
    """Above the limit a connection is refused, and one that ends makes room."""
    with serving(max_connections=1) as served, HttpPeer(served) as first:
        assert first.stateless(stateless(1, "tools/list"))[0] == 200
        refused = raw(served, b"")

        assert refused.startswith(b"HTTP/1.1 503")


def test_a_connection_that_says_nothing_is_ended():
    """After its time."""
    with (
        serving(idle_timeout_s=0.05) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=10) as sock,
    ):
        assert sock.recv(10) == b""


# -- the end ----------------------------------------------------------------------------------------------------------


def test_closing_ends_streams_calls_and_connections():
    """Whatever is under way, nothing is left, and the second time does nothing."""
    began = threading.Event()

    def waits(call_id, args, signal, partial):
        began.set()
        signal.wait(10)

    with serving(tool("wait", waits)) as served:
        with HttpPeer(served) as caller, HttpPeer(served) as idle, HttpPeer(served) as listener:
            caller.shake_hands()
            call = caller.begin(asked(1, "tools/call", name="wait"))
            assert began.wait(10)
            listener.headers = {**caller.headers}
            stream = listener.begin(None, "GET")
            idle.stateless(stateless(1, "tools/list"))
            served.close()
            served.close()
            served.wait()

            assert [event["data"] for event in events(call.read())] == [None]
            assert stream.read() == b""
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", served.port), timeout=10)


@pytest.mark.abandons_threads(2)
def test_a_stateless_call_that_hangs_holds_up_no_end():
    """The connection ends without an answer."""
    began, gate = threading.Event(), threading.Event()

    def hangs(call_id, args, signal, partial):
        began.set()
        gate.wait(30)

    with serving(tool("hang", hangs)) as served, HttpPeer(served) as peer:
        peer.connection.request(
            "POST",
            "/mcp",
            json.dumps(stateless(1, "tools/call", name="hang")),
            {
                **peer.headers,
                "Mcp-Method": "tools/call",
                "Mcp-Name": "hang",
                "MCP-Protocol-Version": "2026-07-28",
            },
        )
        assert began.wait(10)
        served.close(grace_s=0.05)
        gate.set()

        assert served.port


def test_an_address_that_is_taken_is_refused():
    """So is one that can't be, and a token that is none; no socket is left."""
    with serving() as served, McpServer(ToolStore("t")) as server:
        for options in ({"port": served.port}, {"port": 70_000}, {"token": "x"}):
            with pytest.raises(ConfigurationError):
                HttpServing(server, **options)


def test_the_url_says_where_it_is():
    """Host, port and path, as a client needs them."""
    with serving(path="/tools") as served:
        assert served.url == f"http://127.0.0.1:{served.port}/tools"
        assert served.url in repr(served)


def test_a_listener_of_another_family_has_its_brackets():
    """IPv6 works like IPv4, where the machine has it."""
    with (
        McpServer(ToolStore("t")) as server,
        contextlib.suppress(ConfigurationError),
        HttpServing(server, host="::1") as served,
    ):
        assert served.url == f"http://[::1]:{served.port}/mcp"


def test_tokens_are_in_no_log(caplog):
    """Neither a good nor a bad one."""
    with caplog.at_level(logging.DEBUG), serving(token="a-long-secret") as served:
        with HttpPeer(served, Authorization="Bearer a-long-secret") as good:
            good.stateless(stateless(1, "tools/list"))
        with HttpPeer(served, Authorization="Bearer another-secret") as bad:
            assert bad.stateless(stateless(1, "tools/list"))[0] == 401

    assert "secret" not in caplog.text
