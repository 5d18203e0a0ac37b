"""Outlets, and streams that outlive their connections."""

from __future__ import annotations

import contextlib
import math
import socket
import threading

import pytest

from yiemagent.mcp.http_sessions import MAX_SESSIONS, Sessions
from yiemagent.mcp.http_streams import KEPT_EVENTS, Item, Outlet, Stream
from yiemagent.mcp.http_wire import HttpRefusal
from yiemagent.mcp.server import McpServer
from yiemagent.registry import ToolStore


@contextlib.contextmanager
def pair():
    """The two ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def told(number):
    """A message."""
    return {"n": number}


def taken(outlet):
    """What an outlet has: number of the event and data."""
    return [(item.event_id, item.data, item.kind) for item in outlet._taken()]


# -- outlets ----------------------------------------------------------------------------------------------------------


def test_an_outlet_gives_what_is_there():
    """In order and without waiting."""
    outlet = Outlet()
    with pair() as (ours, _):
        outlet.send(told(1))
        outlet.finish(7, {"id": 7}, -5)

        assert outlet.wait(ours, None) == [
            Item("message", b'{"n":1}'),
            Item("answer", b'{"id":7}', None, -5),
        ]
        outlet.close()


def test_an_outlet_wakes_who_waits():
    """What comes from another thread ends the wait."""
    outlet = Outlet()
    with pair() as (ours, _):
        assert outlet.wait(ours, 0.01) == []
        threading.Timer(0.01, outlet.finish, (1, None, None)).start()
        assert outlet.wait(ours, 10) == [Item("end")]
        outlet.close()
        outlet.close()


def test_an_outlet_sees_the_client_go():
    """A closed or reset connection ends the wait."""
    for linger in (None, b"\x01\0\0\0\0\0\0\0"):
        outlet = Outlet()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
            with ours:
                if linger:
                    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                theirs.close()

                assert outlet.wait(ours, 10) is None
        outlet.close()


def test_an_outlet_lets_the_next_request_wait():
    """Bytes of the client that come early are not read, and end no wait."""
    outlet = Outlet()
    with pair() as (ours, theirs):
        theirs.send(b"next")
        threading.Timer(0.01, outlet.send, (told(1),)).start()

        assert outlet.wait(ours, 10) == [Item("message", b'{"n":1}')]
        assert ours.recv(10) == b"next"
        outlet.close()


def test_what_json_cannot_say_is_dropped_or_an_error():
    """A message is dropped; an answer becomes an error."""
    outlet, stream = Outlet(), Stream("1")
    stream.attach(outlet)
    for channel in (outlet, stream):
        channel.send({"x": math.nan})
        channel.finish(3, {"x": math.nan}, None)

    assert [b"can't be sent" in data for _, data, _ in taken(outlet)] == [True, True]
    outlet.interrupt()
    assert taken(outlet) == []


# -- streams ----------------------------------------------------------------------------------------------------------


def test_messages_are_numbered_from_the_first():
    """A primed stream begins with an event without data."""
    stream, outlet = Stream("4", primed=True), Outlet()
    stream.send(told(1))
    stream.attach(outlet)
    stream.finish(1, {"id": 1}, None)

    assert taken(outlet) == [
        ("4/1", b"", "message"),
        ("4/2", b'{"n":1}', "message"),
        ("4/3", b'{"id":1}', "answer"),
    ]
    assert stream.ended


def test_a_client_comes_back_for_the_rest():
    """After its last event it gets what came since, and then what comes."""
    stream, first, second = Stream("4", primed=True), Outlet(), Outlet()
    stream.attach(first)
    stream.send(told(1))
    stream.detach(first)
    stream.detach(second)
    stream.send(told(2))
    stream.attach(second, 1)
    stream.finish(1, {"id": 1}, None)

    assert [data for _, data, _ in taken(second)] == [b'{"n":1}', b'{"n":2}', b'{"id":1}']
    assert [data for _, data, _ in taken(first)] == [b"", b'{"n":1}']


def test_a_client_that_has_it_all_gets_the_end():
    """Where nothing is left, the connection ends."""
    stream, outlet = Stream("4"), Outlet()
    stream.finish(1, {"id": 1}, None)
    stream.attach(outlet, 1)

    assert taken(outlet) == [(None, b"", "end")]


def test_without_a_number_it_goes_on_where_it_was():
    """What an outlet was given is not given again."""
    stream, first, second = Stream("0", None), Outlet(), Outlet()
    stream.attach(first)
    stream.send(told(1))
    stream.detach(first)
    stream.send(told(2))
    stream.attach(second)

    assert [data for _, data, _ in taken(second)] == [b'{"n":2}']
    assert stream.attached


def test_a_second_connection_takes_over():
    """The one before gets its end."""
    stream, first, second = Stream("4"), Outlet(), Outlet()
    stream.attach(first)
    stream.attach(second, 0)
    stream.send(told(1))

    assert taken(first) == [(None, b"", "end")]
    assert [data for _, data, _ in taken(second)] == [b'{"n":1}']


def test_an_interrupted_stream_keeps_what_comes():
    """The connection ends, and the rest is there for the next."""
    stream, first, second = Stream("4"), Outlet(), Outlet()
    stream.interrupt()
    stream.attach(first)
    stream.interrupt()
    stream.finish(1, {"id": 1}, None)
    stream.attach(second, 0)

    assert taken(first) == [(None, b"", "end")]
    assert taken(second)[0] == ("4/1", b'{"id":1}', "answer")


def test_several_answers_end_it_with_the_last():
    """A cancelled one counts, too."""
    stream, outlet = Stream("4", 3), Outlet()
    stream.attach(outlet)
    stream.finish(1, {"id": 1}, None)
    stream.finish(2, {"id": 2}, None)
    assert not stream.ended
    stream.finish(3, None, None)

    assert [kind for _, _, kind in taken(outlet)] == ["message", "message", "end"]
    assert stream.ended


def test_only_the_latest_are_kept():
    """A stream that nobody fetches doesn't grow without end."""
    stream, outlet = Stream("0", None), Outlet()
    for number in range(KEPT_EVENTS + 10):
        stream.send(told(number))
    stream.attach(outlet, 0)

    assert len(taken(outlet)) == KEPT_EVENTS


# -- sessions ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def sessions(**options):
    """The sessions of a server, and a clock."""
    now = [0.0]
    with McpServer(ToolStore("t")) as server:
        made = Sessions(server, 60, clock=lambda: now[0], **options)
        yield made, now
        made.close()


def test_a_session_is_its_owners():
    """Anybody else finds none, whatever the id."""
    with sessions() as (made, _):
        session = made.make("ann")
        made.keep(session)

        assert made.find(session.session_id, "ann") is session
        for session_id, principal in ((session.session_id, "bob"), (session.session_id, None)):
            with pytest.raises(HttpRefusal, match="no such session"):
                made.find(session_id, principal)
        with pytest.raises(HttpRefusal):
            made.find("other", "ann")


def test_session_ids_cannot_be_guessed():
    """Each is of its own and long."""
    with sessions() as (made, _):
        ids = {made.make(None).session_id for _ in range(50)}

        assert len(ids) == 50
        assert min(map(len, ids)) >= 40


def test_sessions_that_nobody_uses_are_forgotten():
    """After an hour of silence say; one that was used, or has a connection, stays."""
    with sessions() as (made, now):
        old, used, held = made.make(None), made.make(None), made.make(None)
        for session in (old, used, held):
            made.keep(session)
        held.home.attach(Outlet())
        now[0] = 50
        made.find(used.session_id, None)
        now[0] = 70
        made.keep(made.make(None))

        with pytest.raises(HttpRefusal):
            made.find(old.session_id, None)
        assert made.find(used.session_id, None) is used
        assert made.find(held.session_id, None) is held


def test_there_is_an_end_of_sessions():
    """Above the limit the one that was idle longest goes."""
    with sessions() as (made, now):
        first = made.make(None)
        made.keep(first)
        for number in range(MAX_SESSIONS):
            now[0] = number / 1e6
            made.keep(made.make(None))

        with pytest.raises(HttpRefusal):
            made.find(first.session_id, None)
        assert len(made._table) == MAX_SESSIONS


def test_streams_are_found_by_their_events():
    """What is no event of the session is refused."""
    with sessions() as (made, _):
        session = made.make(None)
        stream = session.open_stream(1, primed=True)

        assert session.stream_at(f"{stream.stream_id}/12") == (stream, 12)
        assert session.stream_at("0/3") == (session.home, 3)
        for wrong in ("", "1", "1/x", "99/1", "1/-1", "1/" + "9" * 30):
            with pytest.raises(HttpRefusal):
                session.stream_at(wrong)


def test_streams_that_ended_are_forgotten_in_time():
    """A session keeps the latest; those under way stay."""
    with sessions() as (made, _):
        session = made.make(None)
        under_way = session.open_stream(1, primed=False)
        for _ in range(100):
            session.open_stream(1, primed=False).finish(1, None, None)

        assert len(session._streams) < 70
        assert session.stream_at(f"{under_way.stream_id}/0")[0] is under_way
