"""The one port to models: what users hand over becomes a `StreamFn`, and a stream never raises."""

from __future__ import annotations

import functools
import operator

import pytest

from tests.support.loops import raising, tool
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import BadResponseError, ConfigurationError
from yiemagent.llm import StreamFn, StreamOptions, adapt_llm_call, resolve, stream_fn_of
from yiemagent.messages import AssistantMessage, LlmModel, UserMessage
from yiemagent.providers import OpenAIChat
from yiemagent.streaming import DoneEvent, ErrorEvent
from yiemagent.testing import ScriptedModel, failure

CONTEXT = LlmContext("be brief", (UserMessage("hi"),), {"work": tool()})


def ask(llm_call, *, options=None, signal=None, format_msg=None):
    """Ask a plain function once; gives the events."""
    stream = adapt_llm_call(llm_call, format_msg)
    return list(stream(CONTEXT, options or StreamOptions(), signal or AbortSignal()))


# -- what is handed over --


def three(context, options, signal):
    return iter(())


def one(request):
    return "hi"


class Model:
    """A model as an object."""

    def __call__(self, context, options, signal):
        return iter(())


class Plain:
    """A plain call as an object."""

    def __call__(self, request, retries=3, timeout=10):
        return "hi"


@pytest.mark.parametrize(
    "stream_fn",
    [three, Model(), ScriptedModel(), OpenAIChat("m"), functools.partial(three)],
    ids=["function", "object", "scripted", "provider", "partial"],
)
def test_a_stream_fn_stays_what_it_is(stream_fn):
    """A callable of context, options and signal is given back."""
    assert stream_fn_of(stream_fn) is stream_fn
    assert isinstance(stream_fn, StreamFn)


@pytest.mark.parametrize(
    "llm_call", [one, Plain(), len, {}.get], ids=["function", "object", "builtin", "two"]
)
def test_a_plain_call_is_adapted(llm_call):
    """A callable of one request, further defaults or not, becomes a `StreamFn`."""
    adapted = stream_fn_of(llm_call)

    assert adapted is not llm_call
    assert isinstance(
        next(iter(adapted(CONTEXT, StreamOptions(), AbortSignal()))), (DoneEvent, ErrorEvent)
    )


def test_a_callable_that_does_not_say_what_it_takes_is_a_plain_call():
    """Without a signature to look at, one request is what a callable gets."""
    adapted = stream_fn_of(operator.methodcaller("get", "answer", "hi"))

    assert next(iter(adapted(CONTEXT, StreamOptions(), AbortSignal()))).message.text == "hi"


def test_a_class_is_no_model():
    """A class handed over instead of its object is named."""
    with pytest.raises(ConfigurationError, match=r"give an object of it: Model\("):
        stream_fn_of(Model)


def test_a_provider_is_a_stream_fn_and_a_model_string_names_one():
    """A provider object is used as it is; "provider:model" makes one."""
    provider = OpenAIChat("some-model", api_key="k")

    assert stream_fn_of(provider) is provider
    assert isinstance(resolve("openai:some-model"), OpenAIChat)
    assert isinstance(stream_fn_of("openai:some-model"), OpenAIChat)


@pytest.mark.parametrize("model", ["nobody:model", "", ":"])
def test_an_unknown_provider_is_a_configuration_error(model):
    """A model string that names no provider says so at once."""
    with pytest.raises(ConfigurationError):
        stream_fn_of(model)


async def coroutine(request):
    return "hi"


class AsyncModel:
    """A model that is no plain function."""

    async def __call__(self, request):
        return "hi"


@pytest.mark.parametrize(
    "llm_call", [None, 7, object(), coroutine, AsyncModel()], ids=lambda value: type(value).__name__
)
def test_what_can_not_be_a_model_is_a_configuration_error(llm_call):
    """No callable, or a coroutine function, is refused when it is handed over."""
    with pytest.raises(ConfigurationError, match="llm_call"):
        stream_fn_of(llm_call)


@pytest.mark.parametrize(
    ("llm_call", "shown"),
    [
        (lambda: "hi", "<lambda>()"),
        (lambda request, more: "hi", "<lambda>(request, more)"),
        (lambda *, request: "hi", "<lambda>(*, request)"),
        (lambda request, *, key: "hi", "<lambda>(request, *, key)"),
        (lambda a, b, c, d: "hi", "<lambda>(a, b, c, d)"),
    ],
)
def test_a_function_that_can_not_take_a_request_is_no_model(llm_call, shown):
    """What can be called neither with a request nor as a `StreamFn` is refused, with what it takes."""
    with pytest.raises(
        ConfigurationError, match="llm_call must be a function of one arg"
    ) as raised:
        stream_fn_of(llm_call)

    assert str(raised.value).endswith(shown)


async def a_format(context):
    return {}


@pytest.mark.parametrize("form", [5, "chat", a_format, lambda: None, lambda context, more: {}])
def test_a_format_is_a_function_of_the_context(form):
    """What can't make a request of a context is refused at once."""
    with pytest.raises(ConfigurationError, match="format_msg_for_llm"):
        stream_fn_of(one, form)


def test_a_format_is_for_plain_calls_only():
    """`format_msg_for_llm` beside a `StreamFn` names the way to change its request."""
    with pytest.raises(ConfigurationError, match="on_payload"):
        stream_fn_of(three, lambda context: {})


# -- the adapter --


@pytest.mark.parametrize(
    "given",
    [
        "hello",
        AssistantMessage("hello"),
        {"role": "assistant", "content": "hello"},
        {"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"},
        {"choices": [{"message": {"role": "assistant", "content": "hello"}}]},
    ],
    ids=["text", "message", "openai message", "reference", "openai response"],
)
def test_every_shape_of_answer_is_one_done(given):
    """A text, a message and each dict the reference names end in one Done."""
    [event] = ask(lambda _request: given)

    assert isinstance(event, DoneEvent)
    assert (event.message.text, event.message.stop_reason) == ("hello", "stop")


def test_an_answer_that_failed_is_an_error_event():
    """A message whose stop reason is an error ends the stream as one."""
    [event] = ask(lambda _request: failure("no luck"))

    assert isinstance(event, ErrorEvent)
    assert event.message.error_message == "no luck"


@pytest.mark.parametrize(
    "given", [None, 7, [], {}, object()], ids=lambda given: type(given).__name__
)
def test_what_is_no_answer_is_an_error_event(given):
    """A function that gives anything else failed with a bad response."""
    [event] = ask(lambda _request: given)

    assert isinstance(event, ErrorEvent)
    assert isinstance(event.error, BadResponseError)
    assert event.message.stop_reason == "error"


def test_what_the_function_raises_is_an_error_event():
    """A stream never raises: the exception is in its Error event, in words and as it was."""
    error = ValueError("no luck")
    [event] = ask(raising(error), options=StreamOptions(model="m"))

    assert event.error is error
    assert (event.message.stop_reason, event.message.model) == ("error", "m")
    assert event.message.error_message == "ValueError: no luck"


@pytest.mark.parametrize("error", [MemoryError(), StopIteration()])
def test_an_exception_without_text_is_named_by_its_class(error):
    """What says nothing but its class is told as that, as tools' exceptions are."""
    [event] = ask(raising(error))

    assert event.message.error_message == type(error).__name__


def test_an_abort_before_the_call_leaves_the_function_uncalled():
    """An aborted signal gives an aborted answer, and nobody is asked."""
    signal = AbortSignal()
    signal.abort("enough")
    asked = []
    [event] = ask(asked.append, signal=signal)

    assert (event.message.stop_reason, event.message.error_message) == (
        "aborted",
        "aborted: enough",
    )
    assert asked == []


def test_a_function_that_raises_when_aborted_gives_an_aborted_answer():
    """What is raised after the abort is the abort's."""
    signal = AbortSignal()

    def llm_call(_request):
        signal.abort()
        raise ConnectionError

    [event] = ask(llm_call, signal=signal)

    assert (event.message.stop_reason, event.message.error_message) == ("aborted", "aborted")


def test_an_answer_in_spite_of_an_abort_counts():
    """What the function returns in its grace is its answer."""
    signal = AbortSignal()

    def llm_call(_request):
        signal.abort()
        return "hello"

    [event] = ask(llm_call, signal=signal)

    assert isinstance(event, DoneEvent)


def test_the_request_is_an_openai_chat_dict():
    """The default form has messages and tools, and the options where they are set."""
    requests = []

    def llm_call(request):
        requests.append(request)
        return "hi"

    options = StreamOptions(model=LlmModel("m"), temperature=0.0, max_tokens=5, tool_choice="none")
    ask(llm_call, options=options)
    ask(llm_call)

    assert [message["role"] for message in requests[0]["messages"]] == ["system", "user"]
    assert requests[0]["tools"][0]["function"]["name"] == "work"
    wanted = {"model": "m", "temperature": 0.0, "max_tokens": 5, "tool_choice": "none"}
    assert wanted.items() <= requests[0].items()
    assert set(requests[1]) == {"messages", "tools"}


def test_a_format_of_the_users_own_makes_the_request():
    """`format_msg_for_llm` sees the context, and what it sets is not set again."""
    requests = []

    def llm_call(request):
        requests.append(request)
        return "hi"

    ask(
        llm_call,
        options=StreamOptions(model="m", max_tokens=5),
        format_msg=lambda context: {"prompt": context.messages[0].text, "model": "mine"},
    )

    assert requests == [{"prompt": "hi", "model": "mine", "max_tokens": 5}]


@pytest.mark.parametrize("format_msg", [lambda _context: "text", raising(KeyError("x"))])
def test_a_format_that_fails_is_an_error_event(format_msg):
    """A format that raises or gives no dict ends the stream with an error."""
    [event] = ask(one, format_msg=format_msg)

    assert isinstance(event, ErrorEvent)


def test_budgets_of_options_can_not_change():
    """The options keep a read-only copy of the budgets."""
    budgets = {"low": 100}
    options = StreamOptions(thinking_budgets=budgets)
    budgets["low"] = 0

    assert options.thinking_budgets == {"low": 100}
    assert StreamOptions().thinking_budgets == {}


def test_a_callable_that_takes_anything_is_a_plain_function():
    """A decorated function or a mock takes `*args`; it is asked with the request dict, unless it is marked."""
    requests = []

    def wrapped(*args, **kwargs):
        requests.append(args)
        return "hello"

    stream = stream_fn_of(wrapped)
    events = list(stream(LlmContext("", (UserMessage("hi"),)), StreamOptions(), AbortSignal()))
    wrapped.is_stream_fn = True

    assert events[-1].message.text == "hello"
    assert isinstance(requests[0][0], dict)
    assert stream_fn_of(wrapped) is wrapped


def test_an_unknown_use_of_the_cache_is_refused():
    """What a request asks of the prompt cache is one of three words."""
    assert StreamOptions(cache="long").cache == "long"
    with pytest.raises(ValueError, match="cache"):
        StreamOptions(cache="forever")


def test_the_schema_of_an_answer_cannot_change():
    """Options are frozen, the schema in them included."""
    schema = {"type": "object", "properties": {}}
    options = StreamOptions(output_schema=schema)
    schema["properties"]["late"] = {}

    assert options.output_schema == {"type": "object", "properties": {}}
    with pytest.raises(TypeError, match="can't change"):
        options.output_schema["type"] = "string"
