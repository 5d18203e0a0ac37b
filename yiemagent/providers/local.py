"""The embedded model: a language model on this machine, in a process of its own, asked through `OpenAIChat`.

A model that can call tools by itself is asked as any other ("native"). A very small one is asked with the recipe of
`local_recipe`, in phases, each with a prompt of its own whose beginning stays warm in a slot of the server: whether a
tool is called, the call, the answer from the tool's result, and plain talk. An answer from a result is held back until
it is checked, half a second as a rule, and then given as the stream that it was; talk is streamed as it comes. After a
result the recipe's model answers: it makes one call for a question, unless `tool_choice` is "required".
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.builder import MessageBuilder
from yiemagent.context import LlmContext
from yiemagent.errors import (
    AbortedError,
    BadResponseError,
    ConfigurationError,
    HttpError,
    LlmConnectionError,
    YiemAgentError,
    error_text,
)
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, LlmModel, LlmUsage, ToolCall
from yiemagent.openai_format import openai_messages, usage
from yiemagent.providers import local_recipe as recipe
from yiemagent.providers.failures import error_from_body
from yiemagent.providers.local_models import locate
from yiemagent.providers.local_process import (
    LocalServer,
    ServerSpec,
    check_extra,
    server_for,
    stop_servers,
    thread_count,
)
from yiemagent.providers.openai_chat import OpenAIChat
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent, StreamNoticeEvent
from yiemagent.tool import AgentTool

__all__ = ["Bench", "LocalModel", "bench", "create", "stop_servers"]

Profile: TypeAlias = Literal["recipe", "native"]

PROVIDER = "local"
API = "openai-chat"
SEED = 1
_CALL_SLOT, _ANSWER_SLOT, _TALK_SLOT = range(3)
_SLOTS: Mapping[str, int] = {"recipe": 3, "native": 1}
_CALL_TOKENS, _ANSWER_TOKENS, _TALK_TOKENS = 200, 120, 400
_MAX_DATA_CHARS = 4000  # a longer result is shown as it is: a model this small loses its way in it
_CHARS_PER_TOKEN = 2.5  # fewer than there are in English, so that what is kept surely fits


class LocalModel:
    """Asks a model on this machine; it starts at the first question, and all agents of the process share it.

    A `StreamFn`. Called with a request dict alone it is a plain `llm_call`: the model is asked without the recipe.
    Temperature and seed are fixed unless the request asks for others, so the same conversation has the same answer.

    Args:
        model: "" for the default model, a name of the catalogue, or the path of a GGUF file.
        profile: "recipe": calls tools only with help; "native": by itself. None: what the catalogue says of it, and for
            a file whether its chat template knows tools.
        context_tokens: tokens that one request and its answer may have.
        threads: how many the model computes with; None: one on two cores or fewer, else all but one.

    Raises:
        ConfigurationError: the extra `local` is not installed, or the model is not there; the text says what to run.
    """

    is_stream_fn = True  # asked with a context; and with a request dict alone, as a plain function

    def __init__(
        self,
        model: str = "",
        *,
        profile: Profile | None = None,
        context_tokens: int = 4096,
        threads: int | None = None,
    ) -> None:
        if profile not in {None, "recipe", "native"}:
            raise ConfigurationError(f"profile must be 'recipe', 'native' or None, not {profile!r}")
        check_extra()
        path, known = locate(model)
        self.model = known.name if known is not None else path.stem
        self._profile: Profile | None = profile or (known.profile if known is not None else None)
        slots = _SLOTS[self._profile or "recipe"]
        self._spec = ServerSpec(path.resolve(), slots, context_tokens, threads or thread_count())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def model_facts(self, _model: object = None) -> LlmModel:
        """Give what is known of the model, such as its context window; it is the same whichever is asked for."""
        return LlmModel(self.model, "local", context_window=self._spec.context_tokens)

    @overload
    def __call__(
        self, context: LlmContext, options: StreamOptions, signal: AbortSignal, /
    ) -> Iterator[StreamEvent]: ...

    @overload
    def __call__(self, request: Mapping[str, Any], /) -> AssistantMessage: ...

    def __call__(self, *given: Any) -> Iterator[StreamEvent] | AssistantMessage:
        """Stream the answer to a context, or give the whole answer to a request dict.

        Raises:
            YiemAgentError: asked with a request dict: no answer came.
        """
        if len(given) == 1:
            return self._chat(self._server(AbortSignal()))({"temperature": 0, **given[0]})
        context, options, signal = given
        return self._stream(context, options, signal)

    # -- the server ----------------------------------------------------------------------------------------------

    def _server(self, signal: AbortSignal) -> LocalServer:
        signal.raise_if_aborted()
        server = server_for(self._spec)
        server.wait(signal)
        return server

    def _chat(self, server: LocalServer) -> OpenAIChat:
        return OpenAIChat(
            self.model,
            base_url=f"{server.url}/v1",
            api_key=server.api_key,
            extra_body={"seed": SEED},
            provider=PROVIDER,
            client=server.client,
        )

    def _profile_of(self, server: LocalServer, signal: AbortSignal) -> Profile:
        if self._profile is None:
            template = _get(server, "/props", signal).get("chat_template_caps") or {}
            self._profile = "native" if template.get("supports_tools") else "recipe"
        return self._profile

    def _stream(
        self, context: LlmContext, options: StreamOptions, signal: AbortSignal
    ) -> Iterator[StreamEvent]:
        if options.temperature is None:
            options = attrs.evolve(options, temperature=0.0)
        options = attrs.evolve(options, model=None, get_api_key=None)
        try:
            server = self._server(signal)
            chat = self._chat(server)
            if self._profile_of(server, signal) == "native":
                events = chat(context, options, signal)
            else:
                events = _Recipe(server, chat, options, signal).answer(context)
            yield from events
        except Exception as error:  # a stream never raises, whatever goes wrong in a hook or here
            ours = isinstance(error, YiemAgentError)
            text = str(error) if ours else error_text(error)
            yield ErrorEvent(
                AssistantMessage(
                    api=API,
                    provider=PROVIDER,
                    model=self.model,
                    stop_reason="aborted" if isinstance(error, AbortedError) else "error",
                    error_message=text,
                ),
                error,
            )


def create(model: str) -> LocalModel:
    """Give the provider for the model string "local" or "local:model"."""
    return LocalModel(model)


# --- one answer by the recipe -----------------------------------------------------------------------------------------


class _Recipe:
    """One request to a small model: which phase it is, and the events of it."""

    def __init__(
        self, server: LocalServer, chat: OpenAIChat, options: StreamOptions, signal: AbortSignal
    ) -> None:
        self._server = server
        self._chat = chat
        self._options = options
        self._signal = signal
        self._gate_usage = LlmUsage()

    def answer(self, context: LlmContext) -> Iterator[StreamEvent]:
        """Stream the answer to a context."""
        choice, tools = self._options.tool_choice or "auto", dict(context.tools)
        if choice in tools:
            choice, tools = "required", {choice: tools[choice]}
        results = recipe.pending_results(context.messages)
        question = recipe.last_question(context.messages)
        if results and choice != "required":
            return self._tell(question, results)
        if not tools or choice == "none" or not question:
            return self._talk(context)
        prompt = recipe.call_context(tools, question, recipe.earlier_calls(context.messages))
        if choice == "required" or self._gate(prompt, tools, question):
            return self._call(prompt, tools, question)
        return self._talk(context)

    def _ask(
        self, context: LlmContext, slot: int, max_tokens: int, **fields: Any
    ) -> Iterator[StreamEvent]:
        options = attrs.evolve(
            self._options,
            max_tokens=min(max_tokens, self._options.max_tokens or max_tokens),
            tool_choice=None,
            on_payload=_with_fields({"id_slot": slot, **fields}, self._options.on_payload),
        )
        return self._chat(context, options, self._signal)

    def _gate(self, prompt: LlmContext, tools: Mapping[str, AgentTool], question: str) -> bool:
        body = {
            "messages": openai_messages(prompt),
            "grammar": recipe.gate_grammar(tools),
            "logprobs": True,
            "top_logprobs": 20,
            "max_tokens": 8,
            "temperature": 0,
            "id_slot": _CALL_SLOT,
        }
        answer = _post(self._server, "/v1/chat/completions", body, self._signal)
        self._gate_usage = usage(answer.get("usage")) or LlmUsage()
        try:
            logprobs = answer["choices"][0]["logprobs"]["content"]
        except (KeyError, IndexError, TypeError) as error:
            raise BadResponseError("the embedded model gave no probabilities") from error
        return recipe.wants_tool(recipe.call_chance(logprobs, tools), tools, question)

    def _call(
        self, prompt: LlmContext, tools: Mapping[str, AgentTool], question: str
    ) -> Iterator[StreamEvent]:
        schema = {"name": "call", "schema": recipe.call_schema(tools, question)}
        wanted = {"type": "json_schema", "json_schema": schema}
        end = yield from _held(
            self._ask(prompt, _CALL_SLOT, _CALL_TOKENS, response_format=wanted), []
        )
        if isinstance(end, ErrorEvent):
            yield end
            return
        call = recipe.parse_call(end.message.text, tools)
        if call is None:
            error = BadResponseError(
                f"the embedded model wrote no whole call: {end.message.text!r}"
            )
            failed = attrs.evolve(
                end.message, content=(), stop_reason="error", error_message=str(error)
            )
            yield ErrorEvent(failed, error)
            return
        yield from self._as_call(call, end.message)

    def _as_call(self, call: ToolCall, message: AssistantMessage) -> Iterator[StreamEvent]:
        builder = self._builder(message)
        yield builder.start
        index, start = builder.begin("toolCall", call_id=call.id, name=call.name)
        yield start
        yield builder.arguments_delta(index, json.dumps(call.arguments, ensure_ascii=False))
        yield builder.end_block(index)
        yield DoneEvent(builder.message("tool_use", raw_stop_reason=message.raw_stop_reason))

    def _tell(self, question: str, results: Sequence[Any]) -> Iterator[StreamEvent]:
        """Answer from tool results: in the model's words where they hold, else with the results themselves."""
        data = "\n".join(result.text for result in results)
        nothing = AssistantMessage(api=API, provider=PROVIDER, model=self._chat.model)
        if any(result.is_error for result in results) or not 0 < len(data) <= _MAX_DATA_CHARS:
            yield from self._as_result(data, nothing)
            return
        held: list[StreamEvent] = []
        prompt = recipe.answer_context(question, data)
        end = yield from _held(self._ask(prompt, _ANSWER_SLOT, _ANSWER_TOKENS), held)
        if isinstance(end, ErrorEvent):
            yield end
        elif end.message.stop_reason == "stop" and recipe.is_grounded(
            end.message.text, data, question
        ):
            yield from (*held, end)
        else:
            yield from self._as_result(data, end.message)

    def _as_result(self, data: str, message: AssistantMessage) -> Iterator[StreamEvent]:
        builder = self._builder(message)
        yield builder.start
        index, start = builder.begin("text")
        yield start
        yield builder.text_delta(index, recipe.marked_result(data))
        yield builder.end_block(index)
        yield DoneEvent(builder.message("stop", raw_stop_reason=message.raw_stop_reason))

    def _talk(self, context: LlmContext) -> Iterator[StreamEvent]:
        tokens = self._server.spec.context_tokens - _TALK_TOKENS
        said = recipe.chat_context(context, int(tokens * _CHARS_PER_TOKEN))
        return self._ask(said, _TALK_SLOT, _TALK_TOKENS)

    def _builder(self, message: AssistantMessage) -> MessageBuilder:
        builder = MessageBuilder(message.model, PROVIDER, API)
        builder.usage = (message.usage or LlmUsage()) + self._gate_usage
        builder.response_id = message.response_id
        return builder


def _held(
    events: Iterator[StreamEvent], held: list[StreamEvent]
) -> Generator[StreamEvent, None, DoneEvent | ErrorEvent]:
    """Keep the events of a stream in `held`, let notices through, and return the last event."""
    for event in events:
        if isinstance(event, (DoneEvent, ErrorEvent)):
            return event
        if isinstance(event, StreamNoticeEvent):
            yield event
        else:
            held.append(event)
    raise AssertionError  # a stream ends with Done or Error


def _with_fields(
    fields: Mapping[str, Any], theirs: Callable[[dict[str, Any]], dict[str, Any] | None] | None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Give an `on_payload` that adds fields and then asks the user's own."""

    def on_payload(body: dict[str, Any]) -> dict[str, Any]:
        body = {**body, **fields}
        return (theirs(body) if theirs is not None else None) or body

    return on_payload


# --- asking the server itself ----------------------------------------------------------------------------------------


def _get(server: LocalServer, path: str, signal: AbortSignal) -> dict[str, Any]:
    return _request(server, "GET", path, None, signal)


def _post(
    server: LocalServer, path: str, body: Mapping[str, Any], signal: AbortSignal
) -> dict[str, Any]:
    return _request(server, "POST", path, body, signal)


def _request(
    server: LocalServer,
    method: str,
    path: str,
    body: Mapping[str, Any] | None,
    signal: AbortSignal,
) -> dict[str, Any]:
    try:
        with server.client.request(
            method,
            f"{server.url}{path}",
            headers={"Authorization": f"Bearer {server.api_key}"},
            json=body,
            signal=signal,
            idle_timeout_s=600.0,
        ) as response:
            data = response.read()
    except HttpError as error:
        raise LlmConnectionError(f"the embedded model is gone: {error}", None, True) from error
    if response.status != 200:
        raise error_from_body(data, response.status)
    value = json.loads(data)
    return value if isinstance(value, dict) else {}


# --- measuring --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Bench:
    """What a model takes on this machine.

    Args:
        model: its name.
        load_s: seconds from nothing to ready.
        prompt_tokens_per_s: how fast it reads; generated_tokens_per_s: how fast it writes.
        peak_rss_bytes: memory of its process at most, or None where the system does not tell.
        threads: how many it computed with.
    """

    model: str
    load_s: float
    prompt_tokens_per_s: float
    generated_tokens_per_s: float
    peak_rss_bytes: int | None
    threads: int

    def rows(self) -> dict[str, str]:
        """The same in words, by what it is."""
        peak = self.peak_rss_bytes
        return {
            "model": self.model,
            "threads": str(self.threads),
            "load": f"{self.load_s:.2f} s",
            "reading": f"{self.prompt_tokens_per_s:.0f} tokens/s",
            "writing": f"{self.generated_tokens_per_s:.0f} tokens/s",
            "memory": f"{peak / 1e6:.0f} MB at most" if peak is not None else "not known",
        }


def bench(model: str = "", *, signal: AbortSignal | None = None) -> Bench:
    """Measure a model in a process of its own, which ends with it.

    Raises:
        ConfigurationError: the extra or the model is missing, or it can't be loaded.
        AbortedError: the signal was set.
    """
    measured = LocalModel(model)
    signal = signal or AbortSignal()
    server = LocalServer(measured._spec)
    begun = time.monotonic()
    server.start()
    try:
        server.wait(signal)
        load_s = time.monotonic() - begun
        prompt = "Tell me about the sea. " + " ".join(f"Wave {n} is high." for n in range(100))
        body = {
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": 64,
            "ignore_eos": True,
        }
        timings = _post(server, "/v1/chat/completions", body, signal).get("timings") or {}
        return Bench(
            measured.model,
            load_s,
            float(timings.get("prompt_per_second", 0)),
            float(timings.get("predicted_per_second", 0)),
            _peak_rss(server.pid),
            server.spec.threads,
        )
    finally:
        server.stop()


def _peak_rss(pid: int | None) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None
