"""An agent before a scripted server: what a case drives, and what came of it."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import shutil
import sys
import threading
import time

import attrs

from tests.cases.vocabulary import ADAPTER_LINE
from tests.support import wire_answers
from tests.support.http_server import Answer, ScriptedServer, json_answer, sse, sse_answer
from yiemagent import (
    AgentTool,
    AssistantMessage,
    ToolResultMessage,
    ToolStore,
    YiemAgent,
    ask,
    load_tools,
    stop_agent,
)
from yiemagent.providers import AnthropicMessages, OpenAIChat

CHAT, ANTHROPIC = "openai-chat", "anthropic-messages"  # the APIs that streams of cases are in
PATIENCE_S = 20.0
SLOW_PIECES_S = 0.01  # between two pieces that must arrive apart


def provider(server, *, api=CHAT, **options):
    """Give the provider that speaks an API to a scripted server."""
    if api == ANTHROPIC:
        return AnthropicMessages("test-claude", base_url=server.url, api_key="sk-test", **options)
    return OpenAIChat("test-model", base_url=f"{server.url}/v1", api_key="sk-test", **options)


def done_answer(text="done", *, stream=True, api=CHAT):
    """Give an answer that ends a run; of another API than the chat one always the same, and streamed."""
    if api != CHAT:
        return sse_answer(wire_answers.FINAL[api]())
    message = {"role": "assistant", "content": text}
    about = {"id": "chatcmpl-end", "model": "test-model"}
    if stream:
        choice = {"index": 0, "delta": message, "finish_reason": "stop"}
        return sse_answer(sse({**about, "choices": [choice]}))
    return json_answer(
        {**about, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    )


def calling(name, call_id="call_1", **arguments):
    """Give the body of an answer that calls one tool; without `arguments` the call has no such field."""
    call = {"id": call_id, "type": "function", "function": {"name": name, **arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "chatcmpl-t1", "model": "test-model", "choices": [choice]}


ANYTHING = {"type": "object"}


@attrs.define
class Runs:
    """What tools were run with, each a private copy made before the tool could change it."""

    made: list = attrs.field(factory=list)

    def record(self, tool):
        """Give the tool with its runs recorded here."""
        function = tool.function

        def execute(tool_call_id, args, signal, on_partial_result):
            self.made.append({"name": tool.name, "args": copy.deepcopy(args)})
            return function(tool_call_id, args, signal, on_partial_result)

        return attrs.evolve(tool, execute=execute)

    def tool(self, name, schema=ANYTHING, *, text="ok"):
        """Give a tool that gives a text; `<key>` in it stands for that argument."""

        def execute(tool_call_id, args, signal, on_partial_result):
            said = text
            for key, value in args.items():
                said = said.replace(f"<{key}>", str(value))
            return said

        return self.record(
            AgentTool(name, description=f"test tool {name}", input_schema=schema, execute=execute)
        )


class Stage:
    """One agent before one server; a context manager.

    Args:
        answers: what the server says, in turn, the last one again and again.
        tools: the agent's tools.
        stream: whether the provider streams.
        api: the API that the server speaks.
        sink: told of each event, after it is kept.
        options: further arguments of the agent.
    """

    def __init__(
        self, answers, tools=(), *, runs=None, stream=True, api=CHAT, sink=None, **options
    ):
        self.server = ScriptedServer(*answers)
        self.runs = runs if runs is not None else Runs()
        self.events = []
        self.answers = []
        self.took_s = []
        self._changed = threading.Condition()  # protects the events; `wait_for_event` waits on it
        self._sink = sink
        self._records = _Records()
        model = provider(self.server, api=api, stream=stream)
        self.agent = YiemAgent(model, tools=tools, event_sink=self._see, **options)

    def _see(self, event):
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()
        if self._sink is not None:
            self._sink(event)

    def __enter__(self):
        logging.getLogger("yiemagent").addHandler(self._records)
        return self

    def __exit__(self, *_):
        stop_agent(self.agent, timeout_s=5)
        self.server.close()
        logging.getLogger("yiemagent").removeHandler(self._records)

    def reports(self):
        """The texts that were logged at WARNING and above, tracebacks included."""
        return list(self._records.texts)

    def wait_for_event(self, seconds, wanted):
        """Block until an event that is wanted came, at most for so long; gives whether it came."""
        with self._changed:
            return self._changed.wait_for(lambda: any(map(wanted, self.events)), seconds)

    @property
    def bodies(self):
        """The bodies of the requests as bytes."""
        return [request.body for request in self.server.requests]

    def ask(self, text="Go."):
        """Send a prompt and keep its answer and how long it took."""
        began = time.monotonic()
        answer = ask(self.agent, text, timeout_s=PATIENCE_S)
        self.took_s.append(time.monotonic() - began)
        self.answers.append(answer)
        return answer

    @property
    def messages(self):
        """The stored messages."""
        return self.agent.messages

    @property
    def requests(self):
        """The bodies of the requests that the server saw."""
        return [request.json for request in self.server.requests]

    @property
    def first(self):
        """The first assistant message of the history."""
        return next((m for m in self.messages if isinstance(m, AssistantMessage)), None)

    @property
    def results(self):
        """The tool results of the history, in order."""
        return [m for m in self.messages if isinstance(m, ToolResultMessage)]

    def result(self, call_id):
        """The result of one call."""
        return next((m for m in self.results if m.tool_call_id == call_id), None)

    def of_kind(self, *names):
        """The events whose class is named so."""
        return [event for event in self.events if type(event).__name__ in names]


class _Records(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(self.format(record))


def body_answers(bodies, *, stream=False):
    """Give response bodies as answers of a server, with one more that ends a run."""
    return [*(json_answer(body) for body in bodies), done_answer(stream=stream)]


def pieces(data, status=200, kind="text/event-stream"):
    """Give the ways in which the bytes of a body are served: at once, byte by byte, in pieces of seven."""
    fields = [("Content-Type", kind)]
    for name, size in (("at once", None), ("byte by byte", 1), ("in sevens", 7)):
        yield name, Answer(data, headers=fields, status=status, piece=size, length=False)


def cut_at(data, offset):
    """Give the bytes of a stream as an answer cut at one place."""
    return sse_answer([data[:offset], SLOW_PIECES_S, data[offset:]])


# -- folders of tools -------------------------------------------------------------------------------------------------


def copy_tools(folder, target):
    """Copy a folder of tool files with the adapter line in place; gives the copy."""
    copied = target / folder.name
    shutil.copytree(folder, copied)
    for path in sorted(copied.rglob("*.py")):
        if path.is_file():
            adapt(path)
    return copied


def adapt(path):
    """Put the adapter line where a file asks for it."""
    data = path.read_bytes()
    path.write_bytes(data.replace(b"#ADAPTER#", ADAPTER_LINE.encode()))


@contextlib.contextmanager
def importable(folder):
    """Let files import the modules that lie in a folder, and forget them again."""
    beside = {path.stem for path in folder.glob("*.py")}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in beside:
            sys.modules.pop(name, None)


def loaded(folder, runs=None):
    """Load a folder of tools that must all load; gives them by name, with their runs recorded."""
    store = ToolStore("case")
    load_tools(store, folder, on_error="raise")
    tools = {name: tool for name, tool in store.snapshot().items() if name != "list_tools"}
    return {name: runs.record(tool) if runs else tool for name, tool in tools.items()}


def wait(seconds, event=None):
    """Block for a time that the case names."""
    (event or threading.Event()).wait(seconds)


def decoded(data):
    """Give bytes as JSON, or None where they are none."""
    try:
        return json.loads(data)
    except ValueError:
        return None
