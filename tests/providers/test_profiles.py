"""Profiles: each of their cells, as the server that it is for would see it."""

import json
import pathlib
import re
from urllib.parse import urlsplit

import attrs
import pytest

from tests.support.http_server import ScriptedServer, json_answer, sse, sse_answer
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.net.http import HttpClient
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import OpenAIChat, create
from yiemagent.providers.profiles import Profile, profile, profile_for, profile_names
from yiemagent.tool import AgentTool

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVERS = ["ollama", "llamacpp", "vllm", "lmstudio", "openrouter", "deepseek", "mistral", "groq"]
ALL = ["openai", *SERVERS]
TOOL = AgentTool("look", description="Looks.", execute=lambda *_: "x")
HI = UserMessage("hi")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
LEVELS = ["off", "minimal", "low", "medium", "high", "xhigh", "max"]


def chunk(finish=None, **delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


HELLO = sse(chunk(content="Hello"), chunk("stop"))


def asked(name, *messages, model="m", tools=(), body=HELLO, stream=True, **options):
    """Ask a server as the profile's; gives the request and the last event."""
    answer = sse_answer(body) if stream else json_answer(body)
    with ScriptedServer(answer) as server:
        provider = OpenAIChat(model, profile=name, base_url=server.url, api_key="k", stream=stream)
        context = LlmContext("Be brief.", messages or (HI,), tools)
        last = list(provider(context, StreamOptions(**options), AbortSignal()))[-1]
        return server.requests[0].json, last


def sent(name, *messages, **options):
    return asked(name, *messages, **options)[0]


@pytest.mark.parametrize(
    "name, address, variables, needs_key",
    [
        ("openai", "https://api.openai.com/v1", "OPENAI_BASE_URL OPENAI_API_KEY", True),
        ("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_BASE_URL OLLAMA_API_KEY", False),
        ("llamacpp", "http://127.0.0.1:8080/v1", "LLAMACPP_BASE_URL LLAMA_API_KEY", False),
        ("vllm", "http://127.0.0.1:8000/v1", "VLLM_BASE_URL VLLM_API_KEY", False),
        ("lmstudio", "http://127.0.0.1:1234/v1", "LMSTUDIO_BASE_URL LM_API_TOKEN", False),
        ("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_BASE_URL OPENROUTER_API_KEY", True),
        ("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_BASE_URL DEEPSEEK_API_KEY", True),
        ("mistral", "https://api.mistral.ai/v1", "MISTRAL_BASE_URL MISTRAL_API_KEY", True),
        ("groq", "https://api.groq.com/openai/v1", "GROQ_BASE_URL GROQ_API_KEY", True),
    ],
)  # fmt: skip
def test_address_and_key(name, address, variables, needs_key, monkeypatch):
    """Each has its default address, a variable that names another, its key's variable, and does without one or not."""
    variable, key_variable = variables.split()
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv(key_variable, raising=False)
    looked_for = []
    client = HttpClient(environ={}, resolver=lambda *where: looked_for.append(where) or [])
    ours = create(name, "m", client=client, retry=RetryPolicy(max_retries=0))
    without = list(ours(LlmContext("", [HI]), StreamOptions(), AbortSignal()))[-1]
    monkeypatch.setenv(key_variable, "env-key")
    list(ours(LlmContext("", [HI]), StreamOptions(), AbortSignal()))
    with ScriptedServer(sse_answer(HELLO)) as server:
        monkeypatch.setenv(variable, f"{server.url}/elsewhere")
        list(create(name, "m")(LlmContext("", [HI]), StreamOptions(), AbortSignal()))
        request = server.requests[0]

    parts = urlsplit(address)
    assert profile(name).base_url == address
    assert looked_for[-1] == (parts.hostname, parts.port or 443)
    assert len(looked_for) == (1 if needs_key else 2)
    assert (key_variable in without.message.error_message) == needs_key
    assert request.target == "/elsewhere/chat/completions"
    assert request.headers["authorization"] == "Bearer env-key"


@pytest.mark.parametrize("name", ALL)
def test_names(name):
    """Messages carry the provider's name; the example in its texts is a model string."""
    message = asked(name)[1].message
    with pytest.raises(ConfigurationError, match=re.escape(f"{name}:{profile(name).example}")):
        create(name, "")

    assert (message.provider, message.api, message.text) == (name, "openai-chat", "Hello")


@pytest.mark.parametrize("name", ALL)
def test_limit(name):
    """The answer's limit goes under the name that the server knows, and only there."""
    fields = {"max_tokens", "max_completion_tokens"} & sent(name, max_tokens=7).keys()

    assert fields == {
        "max_completion_tokens" if name in {"openai", "groq"} else "max_tokens",
    }


@pytest.mark.parametrize("name", ALL)
def test_instructions(name):
    """Instructions go under the role that every server knows."""
    assert sent(name)["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    "name, model, words",
    [
        ("openai", "gpt-5.1", ["none", "low", "low", "medium", "high", "high", "high"]),
        ("openai", "gpt-4o", [None] * 7),
        ("ollama", "m", ["none", "low", "low", "medium", "high", "high", "high"]),
        ("llamacpp", "m", ["none", "low", "low", "medium", "high", "high", "high"]),
        ("vllm", "m", ["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
        ("lmstudio", "m", ["none", "minimal", "low", "medium", "high", "xhigh", "xhigh"]),
        ("openrouter", "m", ["none", "minimal", "low", "medium", "high", "xhigh", "xhigh"]),
        ("deepseek", "m", [None, "low", "low", "high", "high", "high", "max"]),
        ("mistral", "m", ["none", "high", "high", "high", "high", "high", "high"]),
        ("groq", "openai/gpt-oss-20b", [None, "low", "low", "medium", "high", "high", "high"]),
        ("groq", "qwen/qwen3-32b", ["none", *["default"] * 6]),
    ],
)
def test_reasoning_levels(name, model, words):
    """Each level is asked for in the word that the server, and the model, have for it."""
    found = []
    for level in LEVELS:
        body = sent(name, model=model, reasoning=level)
        given = body.get("reasoning", {}).get("effort") if name == "openrouter" else None
        found.append(body.get("reasoning_effort", given))
        assert ("thinking" in body) == (name == "deepseek")

    assert found == words
    assert not {"reasoning", "reasoning_effort", "thinking"} & sent(name, model=model).keys()


@pytest.mark.parametrize("name", ALL)
def test_budget(name):
    """Tokens for thinking go where the server has a field for them."""
    body = sent(name, reasoning="low", thinking_budgets={"low": 99})
    found = {
        "llamacpp": body.get("thinking_budget_tokens"),
        "vllm": body.get("thinking_token_budget"),
        "openrouter": body.get("reasoning", {}).get("max_tokens"),
    }

    assert found == {key: 99 if key == name else None for key in found}


def turn(name, block):
    """A conversation in which the model has called a tool after thinking, and its next request."""
    answer = AssistantMessage(
        [block, ToolCall("abcDEF123", "look", {})], api="openai-chat", provider=name, model="m"
    )
    messages = sent(name, HI, answer, ToolResultMessage("abcDEF123", "look", "x"))["messages"]
    return {key: value for key, value in messages[2].items() if key not in {"role", "tool_calls"}}


DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}]
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]


@pytest.mark.parametrize(
    "name, delta, back",
    [
        ("openai", {"reasoning_content": "hm"}, {"content": None}),
        ("ollama", {"reasoning": "hm"}, {"content": None, "reasoning": "hm"}),
        ("llamacpp", {"reasoning_content": "hm"}, {"content": None, "reasoning_content": "hm"}),
        ("vllm", {"reasoning": "hm"}, {"content": None, "reasoning": "hm"}),
        ("lmstudio", {"reasoning": "hm"}, {"content": None, "reasoning": "hm"}),
        ("lmstudio", {"reasoning_content": "hm"}, {"content": None, "reasoning_content": "hm"}),
        ("openrouter", {"reasoning": "hm", "reasoning_details": DETAILS},
         {"content": None, "reasoning_details": DETAILS}),
        ("deepseek", {"reasoning_content": "hm"}, {"content": None, "reasoning_content": "hm"}),
        ("mistral", {"content": PARTS}, {"content": PARTS}),
        ("groq", {"reasoning": "hm"}, {"content": None, "reasoning": "hm"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
def test_thinking_is_read_and_goes_back(name, delta, back, stream):
    """Thinking is read where the server puts it, streamed or whole, and goes back where the server looks for it."""
    text = {} if "content" in delta else {"content": "ok"}
    whole = {"choices": [{"message": {**text, **delta}, "finish_reason": "stop"}]}
    streamed = sse(chunk(**delta), chunk(content="ok"), chunk("stop"))
    message = asked(name, body=streamed if stream else whole, stream=stream)[1].message

    assert message.thinking == "hm"
    assert turn(name, message.content[0]) == back


@pytest.mark.parametrize("name", ALL)
def test_thinking_in_tags(name):
    """Thinking in the text's tags is thinking where servers are known to leave it there."""
    message = asked(name, body=sse(chunk(content="<think>hm</think>ok"), chunk("stop")))[1].message
    whole = {"choices": [{"message": {"content": "<think>hm</think>ok"}}]}
    other = asked(name, body=whole, stream=False)[1].message

    assert (message.thinking, message.text) == (other.thinking, other.text)
    assert bool(message.thinking) == (name in {"ollama", "llamacpp", "vllm", "lmstudio", "groq"})


@pytest.mark.parametrize("name", ALL)
def test_answer_without_thinking(name):
    """An answer that had no thinking goes back without any; DeepSeek wants an empty one."""
    extra = {"reasoning_content": ""} if name == "deepseek" else {}

    assert turn(name, TextContent("ok")) == {"content": "ok", **extra}


@pytest.mark.parametrize("name", ALL)
def test_end_of_a_stream(name):
    """Every one of them tells the end: by a finish reason, or by its mark; a stream without either is cut."""
    finished = sse(chunk(content="x"), chunk("stop"), done=False)
    marked, cut = sse(chunk(content="x")), sse(chunk(content="x"), done=False)

    assert [asked(name, body=body)[1].message.stop_reason for body in (finished, marked, cut)] == [
        "stop",
        "stop",
        "error",
    ]


@pytest.mark.parametrize("name", ALL)
def test_usage_of_a_stream(name):
    """The usage of a stream is asked for where it doesn't come by itself; Mistral refuses the field."""
    assert ("stream_options" in sent(name)) == (name != "mistral")


@pytest.mark.parametrize(
    "name, none, required, named",
    [
        *[(name, "none", "required", {"type": "function", "function": {"name": "look"}})
          for name in ("openai", "vllm", "openrouter", "mistral", "groq", "deepseek")],
        *[(name, "none", "required", "required") for name in ("llamacpp", "lmstudio")],
        ("ollama", "no tools", None, None),
    ],
)  # fmt: skip
def test_tool_choices(name, none, required, named):
    """A choice of tools is said in the words that the server heeds, or by the tools that are offered."""

    def choice(word):
        body = sent(name, tools=[TOOL], tool_choice=word)
        return body.get("tool_choice") if "tools" in body else "no tools"

    assert choice("auto") == "auto"
    assert (choice("none"), choice("required"), choice("look")) == (none, required, named)
    disabled = sent(name, tools=[TOOL], tool_choice="required").get("thinking")
    assert disabled == ({"type": "disabled"} if name == "deepseek" else None)


@pytest.mark.parametrize("name", ALL)
def test_call_ids(name):
    """Another model's call has an id that the server takes, the same in call and result."""
    foreign = AssistantMessage([ToolCall("toolu|01-" + "x" * 60, "look", {})], model="b")
    result = ToolResultMessage("toolu|01-" + "x" * 60, "look", "x")
    messages = sent(name, HI, foreign, result)["messages"]
    call_id = messages[2]["tool_calls"][0]["id"]
    rule = {"mistral": r"[a-zA-Z0-9]{9}", "openai": r"[a-zA-Z0-9_-]{1,40}"}

    assert re.fullmatch(rule.get(name, r"[a-zA-Z0-9_-]{1,64}"), call_id)
    assert messages[3]["tool_call_id"] == call_id


@pytest.mark.parametrize("name", ALL)
def test_user_after_tool(name):
    """Between a tool result and a user message Mistral has an answer, the others nothing."""
    answer = AssistantMessage([ToolCall("abcDEF123", "look", {})], model="b")
    messages = sent(name, HI, answer, ToolResultMessage("abcDEF123", "look", "x"), HI)["messages"]
    between = [message["role"] for message in messages[4:-1]]

    assert between == (["assistant"] if name == "mistral" else [])


@pytest.mark.parametrize(
    "kind, blind",
    [
        ("png", {"deepseek"}),
        ("gif", {"deepseek", "ollama", "lmstudio"}),
        ("tiff", {"deepseek", "ollama", "lmstudio", "openai"}),
    ],
)
@pytest.mark.parametrize("name", ALL)
def test_images(name, kind, blind):
    """Images go to the servers that read them; the others are told in words what was there."""
    image = ImageContent("aGk=", f"image/{kind}")
    content = sent(name, UserMessage([image]))["messages"][1]["content"]

    if name in blind:
        assert isinstance(content, str) and f"image/{kind}" in content
    else:
        assert content[0]["image_url"]["url"] == f"data:image/{kind};base64,aGk="


@pytest.mark.parametrize("name", ALL)
def test_images_of_tools(name):
    """Images of tool results stand behind the results, as a user message, where images are read."""
    answer = AssistantMessage([ToolCall("abcDEF123", "look", {})], model="b")
    shown = ToolResultMessage("abcDEF123", "look", [ImageContent("aGk=", "image/png")])
    last = sent(name, HI, answer, shown)["messages"][-1]

    assert last["role"] == ("tool" if name == "deepseek" else "user")


@pytest.mark.parametrize(
    "name, field, cached",
    [
        ("openai", "prompt_cache_key", {"prompt_cache_retention": "24h"}),
        ("openrouter", "session_id", {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
        ("mistral", "prompt_cache_key", {}),
        *[(name, None, {}) for name in ("ollama", "llamacpp", "vllm", "lmstudio", "deepseek", "groq")],
    ],
)  # fmt: skip
def test_caching(name, field, cached):
    """The conversation's id and the wish for a longer cache go into the server's own fields, and nowhere else."""
    model = "anthropic/claude"
    plain, asked_for = (
        sent(name, model=model),
        sent(name, model=model, session_id="s", cache="long"),
    )
    added = {key: value for key, value in asked_for.items() if key not in plain}

    assert added == ({field: "s"} if field else {}) | cached


@pytest.mark.parametrize("name", ALL)
def test_schema_of_the_answer(name):
    """A schema goes to the servers that hold answers to one; beside tools only to those that can have both."""
    alone = "response_format" in sent(name, output_schema=SCHEMA)
    beside = "response_format" in sent(name, output_schema=SCHEMA, tools=[TOOL])
    native = OpenAIChat("m", profile=name).native_output

    assert alone == (name not in {"deepseek", "groq"})
    assert beside == native == (name == "openai")


def test_who_a_base_url_names():
    """A provider's own host tells its profile; a port of this machine, and any other host, tell nothing."""
    assert OpenAIChat("m", base_url="https://api.groq.com/openai/v1").profile.name == "groq"
    assert OpenAIChat("m", base_url="https://openrouter.ai/api/v1").provider == "openrouter"
    assert profile_for("http://127.0.0.1:11434/v1").name == "compatible"
    assert profile_for("https://proxy.test/v1").name == "compatible"


def test_who_the_environment_names(monkeypatch):
    """Another server behind OPENAI_BASE_URL is not asked as OpenAI is, but keeps its name and key."""
    with ScriptedServer(sse_answer(HELLO)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "env-key")
        options = StreamOptions(session_id="s", max_tokens=7)
        [*_, last] = create("openai", "m")(LlmContext("", [HI]), options, AbortSignal())
        request = server.requests[0]

    assert last.message.provider == "openai"
    assert request.headers["authorization"] == "Bearer env-key"
    assert request.json["max_tokens"] == 7 and "prompt_cache_key" not in request.json


@pytest.mark.parametrize("given", ["profile", 0.2])
def test_silence(given):
    """A server may be silent for as long as its profile says, unless the provider is told otherwise."""
    quiet = Profile(name="quiet", idle_timeout_s=0.3)
    with ScriptedServer(sse_answer(sse(chunk(content="x"), done=False), then="hang")) as server:
        provider = OpenAIChat("m", profile=quiet, base_url=server.url, idle_timeout_s=given)
        last = list(provider(LlmContext("", [HI]), StreamOptions(), AbortSignal()))[-1]

    limit_s = 0.3 if given == "profile" else 0.2
    assert f"sent nothing new for {limit_s} s" in last.message.error_message


def test_profile_of_ones_own():
    """A server that no profile fits has one of its own."""
    mine = Profile(name="mine", base_url="http://10.0.0.1/v1", signals_end=False)
    with ScriptedServer(sse_answer(sse(chunk(content="x"), done=False))) as server:
        provider = OpenAIChat("m", profile=mine, base_url=server.url)
        message = list(provider(LlmContext("", [HI]), StreamOptions(), AbortSignal()))[-1].message

    assert (message.stop_reason, message.provider, message.text) == ("stop", "mine", "x")
    assert attrs.evolve(profile("vllm"), signals_end=False) != profile("vllm")


def test_unknown_profile():
    """A profile that nobody knows is refused with those that are known."""
    with pytest.raises(ConfigurationError, match="ollama"):
        OpenAIChat("m", profile="nobody")


def test_every_field_is_one_of_a_profile():
    """The data names no field that does not exist, and each profile is in this file's lists."""
    known = {field.name for field in attrs.fields(Profile)}
    data = json.loads((ROOT / "yiemagent/providers/data/profiles.json").read_text())

    assert sorted(profile_names()) == sorted([*ALL, "compatible"])
    assert {field for entry in data.values() for field in entry} <= known
    for entry in data.values():
        for pattern, words in entry.get("efforts") or ():
            re.compile(pattern)
            assert set(words) <= set(LEVELS)


# --- the tables in the documentation --------------------------------------------------------------------------------


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table_with(first_cells):
    """The rows of the page's table that begins with these cells, by their first cell."""
    lines = (ROOT / "docs/openai-compatible.md").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if cells(line) == first_cells)
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    return {row[0]: row[1:] for row in rows}


def code(words):
    return f"`{words}`" if words else ""


def choices(spoken):
    missing = [word for word in ("none", "required", "named") if word not in spoken.tool_choices]
    return {0: "all", 1: f"all but {missing[0]}" if missing else ""}.get(len(missing), "auto")


ROWS = {
    "limit": lambda p: code(p.max_tokens_field),
    "a reasoning level goes to": lambda p: (
        "`thinking`, " * p.thinking_switch + code(p.effort_field)
    ),
    "a budget goes to": lambda p: code(p.budget_field),
    "thinking goes back in": lambda p: (
        "the field it came in" if p.reasoning_field == "same" else code(p.reasoning_field)
    ),
    "`<think>` in the text": lambda p: "yes" if p.think_tags else "no",
    "usage is asked for": lambda p: "yes" if p.usage_field else "no",
    "tool choices heeded": choices,
    "schema of the answer": lambda p: p.schema_output.replace("_", " "),
    "ids of calls": lambda p: str(p.max_call_id),
    "images": lambda p: "yes" if p.reads_images else "no",
    "session id goes to": lambda p: code(p.cache_key_field),
    "may be silent for": lambda p: f"{p.idle_timeout_s:g} s",
    "cache marks": lambda p: "yes" if p.cache_fields else "no",
}


def test_the_page_tells_what_the_profiles_say():
    """The documentation's table of what is done for each server is what the data says."""
    shown = table_with(["", *ALL])

    assert shown == {row: [of(profile(name)) for name in ALL] for row, of in ROWS.items()}


def test_the_page_tells_where_servers_are():
    """The documentation's table of addresses and variables is what the data says."""
    shown = table_with(["name", "server", "address", "key", "other address"])
    expected = {}
    for name in ALL:
        known = profile(name)
        key = code(known.key_variables[0]) + ("" if known.needs_key else ", if any")
        expected[code(name)] = [
            known.title,
            code(known.base_url),
            key,
            code(known.base_url_variables[0]),
        ]

    assert shown == expected
