"""Servers of tools: what they call their tools, how they behave, and what they answer. The kind `mcp`."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys

import attrs

from tests.cases import prose
from tests.cases.lines import definitions_for, request_for
from tests.cases.prose import means
from tests.cases.stage import wait
from tests.cases.vocabulary import result_problems, same
from tests.support.mcp_http import FakeMcp
from tests.support.mcp_http import result as answer_of
from yiemagent import ToolStore
from yiemagent.abort import AbortSignal
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.mcp import McpClient, connect
from yiemagent.messages import AssistantMessage, ImageContent, ToolCall, UserMessage
from yiemagent.pipeline import (
    FinalizedOutcome,
    ImmediateOutcome,
    create_tool_result_message,
    execute_prepared_tool_call,
    prepare_tool_call,
)
from yiemagent.testing.http_script import json_answer

FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def result_of(store, name, arguments):
    """Call a tool as a loop does; gives the message that holds the call and its result message."""
    call = ToolCall("call_1", name, arguments)
    message = AssistantMessage((call,), stop_reason="tool_use")
    context = AgentContext("", (message,), store.snapshot())
    signal = AbortSignal()
    done = prepare_tool_call(context, message, call, AgentLoopConfig(), signal)
    if not isinstance(done, ImmediateOutcome):
        done = execute_prepared_tool_call(done, signal, lambda _event: None)
    return message, create_tool_result_message(FinalizedOutcome(call, done.result, done.is_error))


# -- names ------------------------------------------------------------------------------------------------------------


@attrs.define
class Named:
    """A server's tools in a store, the server that keeps what it is asked, and the same listed backwards."""

    listed: list
    store: ToolStore
    names: dict
    backwards: dict
    asked: list
    with_unnamed: dict
    reports: list


def drive_names(case, name, data):
    """List a server's tools forwards and backwards, and check what models know them as."""
    listed = data["result"]["tools"]
    asked, reports = [], _Reports()
    store = ToolStore("case")
    with reports:
        tied = connect(store, _server(listed, asked))
        backwards = connect(ToolStore("case"), _server(listed[::-1], []))
        unnamed = connect(ToolStore("case"), _server([*listed, {"name": ""}], []))
    named = Named(
        listed,
        store,
        dict(tied.names),
        dict(backwards.names),
        asked,
        dict(unnamed.names),
        reports.texts,
    )
    for words in case.field("checks"):
        case.problem(name, prose.check("names", words, named))


class _Reports(logging.Handler):
    """What is logged at WARNING and above in a `with` block."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(self.format(record))

    def __enter__(self):
        logging.getLogger("yiemagent").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("yiemagent").removeHandler(self)


def _server(listed, asked):
    def server(method, *words):
        asked.append((method, *words))
        return {"result": {"tools": listed, "content": []}}

    return server


@means("names", "nine model-facing names, distinct, all match the pattern")
def _(named):
    sent = [
        tool["function"]["name"]
        for tool in definitions_for("openai-chat", tuple(named.store.snapshot().values()))
    ]
    if len(set(sent)) != len(named.listed) or not all(map(FIT.fullmatch, sent)):
        yield f"the names are {sent}"


@means("names", r"(\S+) stays (\S+)")
def _(named, before, after):
    if named.names.get(after) != before:
        yield f"the names are {named.names}"


@means("names", "listing again in reverse order gives the same mapping")
def _(named):
    if named.names != named.backwards:
        yield f"it was {named.names} and is {named.backwards}"


@means("names", "calling each model-facing name sends tools/call with exactly the original name")
def _(named):
    for name, original in named.names.items():
        result_of(named.store, name, {})
        if named.asked[-1] != ("tools/call", original, {}):
            yield f"{name} sent {named.asked[-1]}"


@means("names", "a tenth tool with name '' is reported and left out")
def _(named):
    if named.with_unnamed != named.names:
        yield f"the names are {named.with_unnamed}"
    if not any("no name" in text for text in named.reports):
        yield f"reported is {named.reports}"


# -- a server that misbehaves -----------------------------------------------------------------------------------------


def drive_server(case, name, data):
    """Start the case's own server and call its tools in turn, each within its limit."""
    case.take("server.py")
    client = McpClient([sys.executable, str(case.folder / "server.py")], timeout_s=10)
    try:
        store = ToolStore("case")
        tied = connect(store, client)
        if set(tied.names.values()) != set(case.field("tools")):
            case.problem("tools", [f"they are {tied.names}"])
        results = _called(store, client, data["calls"])
        for number, words in enumerate(case.field("results")):
            found = results[number] if number < len(results) else None
            case.problem(f"{name} {number}", _result_problems(words, found))
        pid = client._link.current[0].pipe.pid
    finally:
        client.close()
    words = case.field("server_process")
    case.problem("server_process", prose.check("server_process", words, pid))


def _called(store, client, calls):
    results = []
    for call in calls:
        if "wait_s" in call:
            wait(call["wait_s"])
            continue
        usual_s, client.timeout_s = client.timeout_s, call.get("limit_s", client.timeout_s)
        results.append(result_of(store, call["name"], call["arguments"])[1])
        client.timeout_s = usual_s
    return results


def _result_problems(words, found):
    if limit := re.fullmatch(r"\w+: error result that mentions the (.+)", words):
        return result_problems({"isError": True, "mentions": limit[1]}, found)
    return result_problems({"isError": False, "text": words}, found)


@means("server_process", r"ends when the client closes, within (\d+) s")
def _(pid, seconds):
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([descriptor], [], [], float(seconds))[0]:
            yield f"the process {pid} runs still"
    finally:
        os.close(descriptor)


# -- answers ----------------------------------------------------------------------------------------------------------


def drive_answers(case, name, data):
    """Have a server give each answer to a call, and check what becomes of it."""
    responses, table = data["responses"], case.field("table")
    tools = [{"name": key, "inputSchema": {"type": "object"}} for key in responses]

    def call(message):
        response = responses[message["params"]["name"]]
        return json_answer({"jsonrpc": "2.0", "id": message["id"], **response}, then="keep")

    answers = {"tools/list": lambda m: answer_of(m, {"tools": tools}), "tools/call": call}
    with FakeMcp("legacy", answers) as server, McpClient(server.address) as client:
        store = ToolStore("case")
        connect(store, client)
        for key in responses:
            try:
                message, result = result_of(store, key, {})
            except Exception as error:
                case.problem(f"{name} {key}", [f"raised {error!r}"])
                continue
            case.problem(f"{name} {key}", _answer_problems(table.get(key, {}), message, result))
    case.problem(name, [f"nothing is expected of {key}" for key in set(responses) - set(table)])


def _answer_problems(expected, message, result):
    for key, value in expected.items():
        check = _ANSWER_FIELDS.get(key)
        if check is None:
            yield f"can't drive the field {key}"
        elif not check(value, message, result):
            yield f"{key} {value!r} does not fit {result.content} (isError {result.is_error})"


def _contains(value, result):
    return all(word in result.text for word in ([value] if isinstance(value, str) else value))


def _has_text(value, result):
    return bool(result.text.strip()) if value.startswith("non-empty") else result.text == value


def _json_text(value, message, result):
    return same(json.loads(result.text), value)


def _is_image(value, message, result):
    return [b.mime_type for b in result.content if isinstance(b, ImageContent)] == [value]


def _text_only(value, message, result):
    history = (UserMessage("Go."), message, result)
    body, faults = request_for("openai-chat", history)
    said = next(m["content"] for m in body["messages"] if m["role"] == "tool")
    return not faults and isinstance(said, str) and bool(said.strip())


_ANSWER_FIELDS = {
    "isError": lambda value, _message, result: result.is_error is value,
    "json_text": _json_text,
    "text": lambda value, _message, result: _has_text(value, result),
    "text_contains": lambda value, _message, result: _contains(value, result),
    "must_not_contain": lambda value, _message, result: not _contains(value, result),
    "image": _is_image,
    "text_on_text_only_wire": _text_only,
    "no_exception": lambda value, _message, _result: value,
}

FORMS = {"result": drive_names, "calls": drive_server, "responses": drive_answers}
