"""One gate for a server and a key: who asks while it is closed waits, in every agent of the process."""

import threading
import time

import pytest

from tests.support.http_server import ScriptedServer, json_answer, sse, sse_answer
from yiemagent.abort import AbortSignal
from yiemagent.agent import YiemAgent
from yiemagent.api import ask
from yiemagent.context import LlmContext
from yiemagent.errors import RateLimitError
from yiemagent.events import RateGateEvent
from yiemagent.llm import StreamOptions
from yiemagent.messages import UserMessage
from yiemagent.net.rate_gate import rate_gates
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import OpenAIChat
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamNoticeEvent

SOON_S = 1.0  # 0.1 s is the promise; the rest is for a busy machine
CONTEXT = LlmContext("", [UserMessage("hi")])
HELLO = sse_answer(
    sse({"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]})
)


def busy(wait_ms):
    return json_answer({"error": "busy"}, status=429, headers=[("retry-after-ms", str(wait_ms))])


def provider_of(server, key="k", **options):
    retry = options.pop("retry", RetryPolicy(chance=lambda: 0.0))
    return OpenAIChat("m", base_url=server.url, api_key=key, retry=retry, **options)


def ask_for(provider, signal=None, **options):
    return provider(CONTEXT, StreamOptions(**options), signal or AbortSignal())


def close_gate(server, wait_ms, key="k", **options):
    """Have the server refuse a request; gives the stream, which waits."""
    events = ask_for(provider_of(server, key), **options)
    assert next(events).kind == "retry_scheduled"
    return events


def test_the_others_wait_too():
    """What the server asks one request to wait, another with the same key waits, and then both have their answer."""
    with ScriptedServer(busy(1000), HELLO) as server:
        first = close_gate(server, 1000)
        began = time.monotonic()
        notice, *events = ask_for(provider_of(server))
        took_s = time.monotonic() - began

        assert isinstance(notice, StreamNoticeEvent) and notice.kind == "rate_gate"
        assert 0 < notice.details["delay_ms"] <= 1000
        assert notice.details["host"] == "127.0.0.1"
        assert took_s > notice.details["delay_ms"] / 1000 - 0.01
        assert isinstance(events[-1], DoneEvent)
        assert isinstance(list(first)[-1], DoneEvent)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "key, options", [("other", {}), ("k", {"retry": RetryPolicy(max_retries=0)})]
)
def test_who_does_not_wait(key, options):
    """Another key has a gate of its own, and whoever wants no retries does not wait."""
    with ScriptedServer(busy(30_000), HELLO) as server:
        first = close_gate(server, 30_000)
        events = list(ask_for(provider_of(server, key, **options)))
        first.close()

        assert [event for event in events if isinstance(event, StreamNoticeEvent)] == []
        assert isinstance(events[-1], DoneEvent)


def test_another_server_is_asked():
    """Another server's gate is its own, whatever the key."""
    with ScriptedServer(busy(30_000)) as closed, ScriptedServer(HELLO) as server:
        first = close_gate(closed, 30_000)
        events = list(ask_for(provider_of(server)))
        first.close()

        assert isinstance(events[-1], DoneEvent) and len(server.requests) == 1


def test_a_refusal_without_retries_closes_the_gate_too():
    """Who does not ask again still lets the others know."""
    with ScriptedServer(busy(1000), HELLO) as server:
        refused = list(ask_for(provider_of(server, retry=RetryPolicy(max_retries=0))))
        notice, *_ = ask_for(provider_of(server))

        assert isinstance(refused[-1].error, RateLimitError)
        assert notice.kind == "rate_gate"


def test_abort_at_the_gate():
    """An abort ends the wait at once, and nothing is asked."""
    with ScriptedServer(busy(30_000)) as server:
        first = close_gate(server, 30_000)
        signal = AbortSignal()
        events = ask_for(provider_of(server), signal)
        assert next(events).kind == "rate_gate"
        timer = threading.Timer(0.1, signal.abort)
        timer.start()
        [last] = events
        timer.join()
        first.close()

        assert last.message.stop_reason == "aborted"
        assert time.monotonic() - signal.aborted_at < SOON_S
        assert len(server.requests) == 1
        assert not signal._callbacks


def test_a_wait_that_is_too_long_fails_at_once():
    """Who may not wait that long is refused at the gate, with the time that is left, and asks nothing."""
    with ScriptedServer(busy(30_000)) as server:
        first = close_gate(server, 30_000)
        [last] = ask_for(provider_of(server), max_retry_delay_ms=1000)
        first.close()

        assert isinstance(last, ErrorEvent) and isinstance(last.error, RateLimitError)
        assert "the limit is 1 s" in last.message.error_message
        assert len(server.requests) == 1


def test_what_nobody_waits_for_closes_nothing():
    """A server that asks for a day refuses this request; the next asks for itself."""
    with ScriptedServer(busy(86_400_000), HELLO) as server:
        [refused] = ask_for(provider_of(server))
        events = list(ask_for(provider_of(server)))

        assert isinstance(refused.error, RateLimitError)
        assert isinstance(events[-1], DoneEvent)


def test_a_refusal_without_a_time_closes_nothing():
    """Without Retry-After only the refused request waits."""
    with ScriptedServer(json_answer({"error": "busy"}, status=429), HELLO) as server:
        first = close_gate(server, 0)
        events = list(ask_for(provider_of(server)))

        assert events[-1].message.text == "Hello"
        assert not [event for event in events if isinstance(event, StreamNoticeEvent)]
        assert list(first)[-1].message.text == "Hello"


def test_all_go_through_together():
    """When the time is over many who waited all have their answers, and no gate is kept."""
    before = len(rate_gates)
    with ScriptedServer(busy(1000), HELLO) as server:
        first = close_gate(server, 1000)
        provider = provider_of(server)
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(list(ask_for(provider))[-1]))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        list(first)

        assert [answer.message.text for answer in answers] == ["Hello"] * 12
        assert len(server.requests) == 14
    assert len(rate_gates) <= before


def test_waits_are_spread():
    """Who waits does so a little longer than asked, by chance, so that not all ask in the same moment."""
    with ScriptedServer(busy(1000)) as server:
        first = close_gate(server, 1000)
        waits = []
        for chance in (0.0, 1.0):
            policy = RetryPolicy(chance=lambda chance=chance: chance)
            events = ask_for(provider_of(server, retry=policy))
            waits.append(next(events).details["delay_ms"])
            events.close()
        first.close()

        assert waits[0] <= 1000 < waits[1] <= 1100


def test_an_agent_tells_of_it():
    """The wait at the gate is an event of the run, in each agent of the process."""
    events = []
    with ScriptedServer(busy(1000), HELLO) as server:
        first = close_gate(server, 1000)
        with YiemAgent(provider_of(server), event_sink=events.append) as agent:
            answer = ask(agent, "hi")
        list(first)

    assert answer.text == "Hello"
    assert [event.details["host"] for event in events if isinstance(event, RateGateEvent)] == [
        "127.0.0.1"
    ]
