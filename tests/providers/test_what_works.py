"""What works with which provider: each cell of the table in `docs/providers/README.md` is a test of that word.

The table is the data: a row names its test, a column its parameter, and the test walks what the cell's word says.
"""

import contextlib
import json
import pathlib
import re

import pytest

from tests.providers.contract.apis import BY_NAME, WORDS, transcript
from tests.support.http_server import Answer, ScriptedServer, sse_answer
from tests.support.stand_in import GREETING, stand_in
from yiemagent import YiemAgent, ask, tool
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import LlmConnectionError
from yiemagent.llm import StreamOptions, resolve
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    LlmUsage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import create
from yiemagent.streaming import StreamNoticeEvent, TextDeltaEvent
from yiemagent.tool import AgentTool

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "providers" / "README.md"
# How each column's provider is made: a model's name, and options that say what its name stands for.
PROVIDERS = {
    "openai": ("gpt-5.1", {"profile": "openai"}),
    "openai-responses": ("gpt-5.1", {}),
    "anthropic": ("claude-sonnet-5", {}),
    "gemini": ("gemini-3.8-flash", {}),
    "ollama": ("qwen3", {}),
    "llamacpp": ("qwen3", {}),
    "vllm": ("Qwen/Qwen3-8B", {}),
    "lmstudio": ("qwen/qwen3-8b", {}),
    "openrouter": ("anthropic/claude-sonnet-5", {}),
    "deepseek": ("deepseek-chat", {}),
    "mistral": ("mistral-medium-latest", {}),
    "groq": ("openai/gpt-oss-120b", {}),
}
EACH = pytest.mark.parametrize("name", PROVIDERS)
QUICK = RetryPolicy(base_delay_ms=1)
PICTURE = ImageContent("aGVsbG8=", "image/png")
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
LOOK = AgentTool("look", description="Looks.", input_schema=SCHEMA, execute=lambda *_: "x")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_table():
    """The table's words, by test and column, and the columns in order."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| what"))
    columns = cells(lines[start])[1:-1]
    words = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        _what, *row, test = cells(line)
        (name,) = re.findall(r"^`(test_\w+)`$", test)
        assert len(row) == len(columns), line
        words[name] = dict(zip(columns, row, strict=True))
    return words, columns


TABLE, COLUMNS = read_table()


def api_of(name):
    apis = {
        "openai-responses": "openai-responses",
        "anthropic": "anthropic-messages",
        "gemini": "gemini",
    }
    return BY_NAME[apis.get(name, "openai-chat")]


@contextlib.contextmanager
def serving(name, *answers, **options):
    """A server with the answers, and the column's provider that asks it."""
    model, stands_for = PROVIDERS[name]
    with ScriptedServer(*answers) as server:
        url = server.url + api_of(name).base_path
        given = {"base_url": url, "api_key": "key-1", "retry": QUICK, **stands_for, **options}
        provider = create(name, model, **given)
        yield server, provider
        provider.close()


def played(name, which):
    """A server's answer that is a transcript of the column's API."""
    return sse_answer(transcript(api_of(name), which))


def events_of(provider, *messages, options=None, tools=()):
    context = LlmContext("Be brief.", list(messages or [UserMessage("hi")]), tools)
    return list(provider(context, options or StreamOptions(), AbortSignal()))


def sent(name, *messages, options=None, tools=()):
    """The body of a request to the column's own server, as it is sent."""
    model, stands_for = PROVIDERS[name]
    context = LlmContext("Be brief.", list(messages or [UserMessage("hi")]), tools)
    with contextlib.closing(create(name, model, **stands_for)) as provider:
        body = provider._body(context, options or StreamOptions())
    return json.loads(json.dumps(body, allow_nan=False))


def own(name, *blocks):
    """An answer of the column's model."""
    model, stands_for = PROVIDERS[name]
    with contextlib.closing(create(name, model, **stands_for)) as provider:
        return AssistantMessage(blocks, provider.api, provider.provider, model)


def within(value, word):
    """Whether a word stands in a JSON value."""
    return word in json.dumps(value, ensure_ascii=False)


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_table_has_every_provider_and_every_test():
    """The columns are the providers, and each row is a test that is there for each of them."""
    here = {
        name
        for name, value in globals().items()
        if name.startswith("test_") and hasattr(value, "pytestmark")
    }

    assert list(PROVIDERS) == COLUMNS
    assert set(TABLE) == {
        name for name in here if any(m.args[0] == "name" for m in globals()[name].pytestmark)
    }


def test_each_column_is_a_model_string():
    """Each column's name is what stands before the colon of a model string."""
    made = {name: resolve(f"{name}:{model}") for name, (model, _) in PROVIDERS.items()}

    assert {name: provider.model for name, provider in made.items()} == {
        name: model for name, (model, _) in PROVIDERS.items()
    }


# --- answers ---------------------------------------------------------------------------------------------------------


@EACH
def test_streamed_text(name):
    """Text comes in pieces and is whole at the end."""
    with serving(name, played(name, "text")) as (_, provider):
        events = events_of(provider)
    deltas = [event.delta for event in events if isinstance(event, TextDeltaEvent)]

    assert TABLE["test_streamed_text"][name] == "yes"
    assert len(deltas) > 1
    assert "".join(deltas) == events[-1].message.text == WORDS
    assert events[-1].message.stop_reason == "stop"


@EACH
def test_whole_answers(name):
    """With `stream=False` an answer comes whole."""
    with serving(name, stand_in, stream=False) as (server, provider):
        message = events_of(provider)[-1].message
        asked = server.requests[0]

    assert TABLE["test_whole_answers"][name] == "yes"
    assert (message.text, message.stop_reason) == (GREETING, "stop")
    assert not asked.json.get("stream")
    assert "stream" not in asked.target


@EACH
def test_tool_calls(name):
    """A tool that the model calls runs, and the model is told what it gave."""

    @tool
    def get_population(city: str) -> str:
        """Give the number of people who live in a city."""
        return f"{city}: 14 million"

    with (
        serving(name, stand_in) as (_, provider),
        YiemAgent(provider, tools=[get_population]) as agent,
    ):
        answer = ask(agent, "How many people live in Tokyo?")

    assert TABLE["test_tool_calls"][name] == "yes"
    assert answer.text == "I looked: Tokyo: 14 million"


@EACH
def test_calls_at_once(name):
    """Several calls of one answer are told apart."""
    with serving(name, played(name, "tool_calls")) as (_, provider):
        message = events_of(provider)[-1].message

    assert TABLE["test_calls_at_once"][name] == "yes"
    assert message.stop_reason == "tool_use"
    assert [call.name for call in message.tool_calls] == ["get_weather", "get_time"]
    assert len({call.id for call in message.tool_calls}) == 2


@EACH
def test_thinking(name):
    """Thinking is given apart from the text."""
    with serving(name, played(name, "thinking")) as (_, provider):
        message = events_of(provider)[-1].message

    assert TABLE["test_thinking"][name] == "yes"
    assert (message.thinking, message.text) == ("Let me think.", "So: 4")


@EACH
def test_thinking_goes_back(name):
    """Thinking, or what stands for it, is sent back to the model that had it; else it is kept here alone."""
    marks = {"anthropic": "EqQBCg", "openai-responses": "gAAAA", "gemini": "c2ln"}
    with serving(name, played(name, "thinking"), stand_in) as (server, provider):
        message = events_of(provider)[-1].message
        events_of(provider, UserMessage("hi"), message, UserMessage("and?"))
        body = server.requests[1].json
    went = within(body, marks.get(name, "Let me think."))

    assert {True: "yes", False: "no"}[went] == TABLE["test_thinking_goes_back"][name]


@EACH
def test_usage(name):
    """Input that was cached is told apart from what was not."""
    with serving(name, played(name, "text")) as (_, provider):
        usage = events_of(provider)[-1].message.usage

    assert TABLE["test_usage"][name] == "yes"
    assert LlmUsage(*api_of(name).usage) == LlmUsage(
        usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens,
        usage.reasoning_tokens,
    )  # fmt: skip


@EACH
def test_refusals(name):
    """A refusal is an error, and the server's own word for it is kept."""
    with serving(name, played(name, "refusal")) as (_, provider):
        message = events_of(provider)[-1].message

    assert TABLE["test_refusals"][name] == "yes"
    assert message.stop_reason == "error"
    assert message.raw_stop_reason == api_of(name).raw["refusal"]


@EACH
def test_cut_answers(name):
    """An answer that breaks off is an error that holds what came."""
    with serving(name, played(name, "cut")) as (_, provider):
        last = events_of(provider)[-1]

    assert TABLE["test_cut_answers"][name] == "yes"
    assert isinstance(last.error, LlmConnectionError)
    assert last.message.text == "Half a"


@EACH
def test_waits(name):
    """Where the server asks to wait, that long is waited, and then asked again."""
    busy = Answer(
        b'{"error": {"message": "slow down"}}', status=429, headers=[("retry-after-ms", "20")]
    )
    with serving(name, busy, stand_in) as (server, provider):
        notice, *_, last = events_of(provider)

        assert len(server.requests) == 2
    assert TABLE["test_waits"][name] == "yes"
    assert isinstance(notice, StreamNoticeEvent)
    assert notice.details["delay_ms"] == 20
    assert last.message.text == GREETING


# --- what is sent ----------------------------------------------------------------------------------------------------


@EACH
def test_images(name):
    """An image is sent, or a note says that one was there."""
    body = sent(name, UserMessage([TextContent("see"), PICTURE]))
    word = TABLE["test_images"][name]

    assert within(body, PICTURE.data) == (word == "yes")
    assert within(body, "image/png")
    assert word in {"yes", "note"}


@EACH
def test_images_of_tools(name):
    """An image of a tool is sent in the result, or in a message behind it, or a note says that one was there."""
    result = ToolResultMessage("call_1", "look", [PICTURE])
    body = sent(
        name, UserMessage("hi"), own(name, ToolCall("call_1", "look", {})), result, tools=[LOOK]
    )
    word = TABLE["test_images_of_tools"][name]
    lists = [body.get(field) for field in ("messages", "input", "contents")]
    last = next(entries for entries in lists if entries)[-1]
    in_result = any(
        within(last, mark) for mark in ("function_call_output", "tool_result", "functionResponse")
    )

    assert within(last, PICTURE.data) == (word != "note")
    assert in_result == (word == "yes")


@EACH
def test_structured_output(name):
    """The schema is sent to the server, or the provider says that a tool must take the answer."""
    options = StreamOptions(output_schema=SCHEMA)
    with serving(name, stand_in) as (_, provider):
        native = provider.native_output
    if native:
        body = sent(name, options=options, tools=[LOOK])
        assert within({key: value for key, value in body.items() if key != "tools"}, '"word"')

    assert {True: "native", False: "tool"}[native] == TABLE["test_structured_output"][name]


@EACH
def test_reasoning(name):
    """A reasoning level changes what is asked for."""
    plain = sent(name)
    high = sent(name, options=StreamOptions(reasoning="high"))

    assert TABLE["test_reasoning"][name] == "yes"
    assert high != plain
    assert (
        within(high, "high")
        or within(high, "HIGH")
        or within(high, "enabled")
        or within(high, "adaptive")
    )


@EACH
def test_tool_choice(name):
    """That a tool must be called is sent; "no" where the server would not heed it."""
    free = sent(name, tools=[LOOK])
    bound = sent(name, tools=[LOOK], options=StreamOptions(tool_choice="required"))

    assert {True: "yes", False: "no"}[bound != free] == TABLE["test_tool_choice"][name]


@EACH
def test_prompt_cache(name):
    """What a cache needs is sent: marks in the body, a key, or nothing where it works by itself."""
    plain = sent(name, options=StreamOptions(cache="none"))
    asked = sent(name, options=StreamOptions(cache="short", session_id="session-7"))
    kinds = {
        "marks": within(asked, "cache_control") and not within(plain, "cache_control"),
        "key": within(asked, "session-7"),
    }
    found = " + ".join([word for word, there in kinds.items() if there]) or "itself"

    assert found == TABLE["test_prompt_cache"][name]


@EACH
def test_keys(name, monkeypatch):
    """The key comes from the variable of that name, and is asked for by that name where it is missing."""
    variable = TABLE["test_keys"][name].strip("`*")
    is_needed = not TABLE["test_keys"][name].endswith("*")
    model, stands_for = PROVIDERS[name]
    provider = create(name, model, **stands_for)
    for other in (*provider.endpoint.key_variables, *provider.endpoint.base_url_variables):
        monkeypatch.delenv(other, raising=False)
    assert provider.endpoint.needs_key is is_needed
    if is_needed:
        message = events_of(provider)[-1].message
        assert variable in message.error_message

    with serving(name, stand_in) as (server, given):
        monkeypatch.setenv(
            provider.endpoint.base_url_variables[0], server.url + api_of(name).base_path
        )
        monkeypatch.setenv(variable, "key-of-the-environment")
        with contextlib.closing(create(name, model, **stands_for)) as by_environment:
            assert events_of(by_environment)[-1].message.text == GREETING
        assert within(dict(server.requests[0].headers), "key-of-the-environment")
        assert given.provider == by_environment.provider


@EACH
def test_conversations_of_others(name):
    """A conversation that another model began goes on: its words and calls are sent, its marks are not."""
    other = AssistantMessage(
        [
            ThinkingContent("I must look.", "opaque-thinking"),
            TextContent("I look.", "opaque-text"),
            ToolCall("toolu_other|1", "look", {"word": "tree"}, None, "opaque-call"),
        ],
        "another-api", "another", "another-model",
    )  # fmt: skip
    result = ToolResultMessage("toolu_other|1", "look", "A tree.")
    body = sent(name, UserMessage("look"), other, result, UserMessage("and?"), tools=[LOOK])

    assert TABLE["test_conversations_of_others"][name] == "yes"
    assert not within(body, "opaque-")
    assert not within(body, "toolu_other|1")
    assert all(within(body, word) for word in ("I look.", "tree", "A tree.", "and?"))
