"""What the cases say in words, and the assertion that each means.

An expectation in words is looked up by its whole text, with its names and numbers left open. Words that stand in no
table can't be driven, and the case that holds them fails.
"""

from __future__ import annotations

import ast
import itertools
import json
import re

from tests.cases.vocabulary import request_problems, result_problems, same
from yiemagent import AssistantMessage, ToolResultMessage, UserMessage
from yiemagent.codec import to_json
from yiemagent.limits import total_usage

_TABLES = {}


def means(table, pattern):
    """Register the assertion that words of a field mean; it is given what was driven, and the groups of the pattern."""

    def register(function):
        _TABLES.setdefault(table, []).append((re.compile(pattern, re.DOTALL), function))
        return function

    return register


def check(table, text, stage):
    """Say where what was driven does not hold what some words say."""
    for pattern, function in _TABLES.get(table, ()):
        if found := pattern.fullmatch(text):
            return [
                f"{table} {text!r}: {problem}" for problem in function(stage, *found.groups()) or ()
            ]
    return [f"can't drive the words {text!r} of {table}"]


# -- notes: what is said about the driving and asks for no assertion of its own ---------------------------------------

NOTES = {
    (
        "Play both streams against one tool server_info that counts its runs. Then deliver each row of input.json as a "
        "call of server_info and as a call of weather."
    ),
    "for each tool: turn 1 calls it, turn 2 answers 'done'",
    "row values are shown without defaults; if defaults are filled in, lim 10 is added in every row",
    "the first entry of each any_of",
    "compare type and value: int 5, not 5.0 and not True",
    "HTTPDATE:+3 = IMF-fixdate of now+3 s; HTTPDATE-NOZONE drops ' GMT'",
    "the value is the caller's at the time of the prompt; for the blocking entry point this is required",
    "only pictures of the damage; the real format is the library's own",
}


# -- streams ----------------------------------------------------------------------------------------------------------


@means("ids", "distinct, not empty")
def _(stage):
    ids = [call.id for call in stage.first.tool_calls]
    if len(set(ids)) != len(ids) or not all(ids):
        yield f"the ids are {ids}"


@means("events", "every text delta event encodes to UTF-8; joined they equal the text")
def _(stage):
    updates = [event.stream_event for event in stage.of_kind("MessageUpdateEvent")]
    deltas = [event.delta for event in updates if type(event).__name__ == "TextDeltaEvent"]
    for delta in deltas:
        delta.encode()
    text = "".join(m.text for m in stage.messages if isinstance(m, AssistantMessage))
    if not text.startswith("".join(deltas)[: len(stage.first.text)]):
        yield f"the deltas {deltas} are not the text {text!r}"


@means("must_not", r"U\+FFFD in the text")
def _(stage):
    if "\ufffd" in stage.first.text:
        yield f"the text is {stage.first.text!r}"


@means("must_not", "code points D800-DFFF anywhere")
def _(stage):
    for message in stage.messages:
        if re.search("[\ud800-\udfff]", json.dumps(to_json(message), ensure_ascii=False)):
            yield f"found in {message!a}"


@means("stream table", r"(stop|error|length|tool_use|aborted)((?:, .*)?)")
def _(stage, stop, more):
    answer = stage.answers[0]
    reached = stage.first if stop == "tool_use" else answer
    if reached.stop_reason != stop:
        yield f"the answer ended with {reached.stop_reason} ({reached.error_message}), text {reached.text!r}"
    for words in filter(None, more.split(", ")):
        yield from check("stream table item", words, stage)


@means("stream table item", r"text '(.*)'")
def _(stage, text):
    if stage.answers[0].text != text:
        yield f"the text is {stage.answers[0].text!r}"


@means("stream table item", r"(\w+) not run")
def _(stage, name):
    if any(run["name"] == name for run in stage.runs.made):
        yield "it ran"


@means(
    "error_means",
    r"stop == error, a non-empty error text that speaks of an incomplete stream "
    r"\(or a retry of the request, then error\); partial text may be shown but not as a finished answer",
)
def _(stage):
    text = (stage.answers[0].error_message or "").lower()
    words = (
        "incomplete",
        "ended",
        "closed",
        "cut",
        "before",
        "broke",
        "without",
        "empty",
        "no answer",
    )
    if not any(word in text for word in words):
        yield f"the error text is {text!r}"


@means("replay", r"tool_calls\[0\]\.function\.arguments == ('.*')")
def _(stage, text):
    expected = ast.literal_eval(text)
    for call in _replayed_calls(stage)[:1]:
        if call["function"]["arguments"] != expected:
            yield f"the replayed arguments are {call['function']['arguments']!r}"
    if not _replayed_calls(stage):
        yield "no call was replayed"


@means("replay", r"tool_use\.input == \{\} \(an object, not null, not a string\)")
def _(stage):
    blocks = [block for m in stage.requests[1]["messages"] for block in m["content"]]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if not calls or not same(calls[0]["input"], {}):
        yield f"the replayed calls are {calls}"


@means("two_requests", r"if both streams were turns of one run: total output (\d+)")
def _(messages, output):
    answers = [message for message in messages if isinstance(message, AssistantMessage)]
    total = total_usage(messages).output_tokens
    if len(answers) != 2 or total != int(output):
        yield f"{len(answers)} answers have the total output {total}"


@means(
    "replay",
    r"function\.arguments is a str and json\.loads of it equals the object; id equals the tool message's tool_call_id; "
    r"type == 'function'",
)
def _(stage):
    (call,) = _replayed_calls(stage)
    tool_message = next(m for m in stage.requests[1]["messages"] if m["role"] == "tool")
    if not isinstance(call["function"]["arguments"], str):
        yield f"the arguments are {call['function']['arguments']!r}"
    elif not same(
        json.loads(call["function"]["arguments"]), dict(stage.first.tool_calls[0].arguments)
    ):
        yield f"the arguments {call['function']['arguments']!r} are another object"
    if call["id"] != tool_message["tool_call_id"]:
        yield f"call {call['id']!r} is answered as {tool_message['tool_call_id']!r}"
    if call.get("type") != "function":
        yield f"the type is {call.get('type')!r}"


@means("replay", r"the digits (\d+) appear unchanged in the next request body")
def _(stage, digits):
    bodies = [body.decode() for body in stage.bodies]
    if not any(digits in body for body in bodies):
        yield f"they are in none of {len(bodies)} requests"


@means("replay", "same")
def _(stage):
    sent = [
        dict(call.arguments)
        for m in stage.messages
        if isinstance(m, AssistantMessage)
        for call in m.tool_calls
    ]
    replayed = [json.loads(call["function"]["arguments"]) for call in _replayed_calls(stage)]
    if not same(sent, replayed):
        yield f"replayed were {replayed}, sent {sent}"


def _replayed_calls(stage):
    if len(stage.requests) < 2:
        return []
    messages = stage.requests[1]["messages"]
    return [call for message in messages for call in message.get("tool_calls", ())]


# -- rows of arguments ------------------------------------------------------------------------------------------------


@means("rows", "an exception out of the loop")
def _(rows):
    for row in rows:
        if row.raised is not None:
            yield f"row {row.id} raised {row.raised!r}"


@means("rows", r"a run with \{\}(?: instead of the sent values)?")
def _(rows):
    for row in rows:
        if {} in row.runs:
            yield f"row {row.id} ran with nothing"


@means("rows", "a run with only some of the properties")
def _(rows):
    for row in rows:
        for run in row.runs:
            missing = [key for key in row.properties if f'"{key}"' in row.sent and key not in run]
            if missing:
                yield f"row {row.id} ran without {missing}"


@means("rows", r"decoding of property (\w+)")
def _(rows, name):
    for row in rows:
        for run in row.runs:
            if name in run and not isinstance(run[name], str):
                yield f"row {row.id} ran with {run[name]!r}"


@means("rows", r"the digits (\d+) appear unchanged in the next request body")
def _(rows, digits):
    if not any(digits in json.dumps(row.replayed) for row in rows):
        yield "they are in no request"


@means(
    "rows",
    r"replayed to the provider the arguments text must be strict JSON \(control characters escaped\)",
)
def _(rows):
    for row in rows:
        try:
            json.loads(row.replayed)
        except ValueError as error:
            yield f"row {row.id} was replayed as {row.replayed!r}: {error}"


@means("rows", r"the stored call still has the arguments the model sent \((\{.*\})\)")
def _(rows, text):
    for row in rows:
        if row.sent == text and not same(dict(row.stored.arguments), json.loads(text)):
            yield f"row {row.id} holds {row.stored.arguments}"


@means(
    "outgoing",
    r"for openai-chat and anthropic-messages: collect every \$ref in the tool definition; each must resolve within "
    r"parameters/input_schema; '(.*)' and the enum (\w+)/(\w+) are present",
)
def _(definitions, description, *members):
    text = json.dumps(definitions)
    for definition in definitions:
        parameters = _schema(definition)
        for reference in _references(parameters):
            if not reference.startswith("#") or _resolved(parameters, reference) is None:
                yield f"{reference} does not resolve in {definition}"
    if description not in text or json.dumps(list(members)) not in text:
        yield f"{description!r} or the enum {members} is lost"


def _schema(definition):
    """The schema of a tool in a request of whatever API."""
    definition = definition.get("function", definition)
    return definition.get("parameters", definition.get("input_schema"))


def _references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _references(item)


def _resolved(document, reference):
    for part in reference.lstrip("#").strip("/").split("/"):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document


# -- requests ---------------------------------------------------------------------------------------------------------


@means("request", "assistant messages with tool_calls: content is null or the key is absent")
def _(body):
    for message in body["messages"]:
        if message.get("tool_calls") and message.get("content") is not None:
            yield f"content is {message['content']!r}"


@means("request", "no assistant message with neither content nor tool_calls")
def _(body):
    for message in body["messages"]:
        if message["role"] == "assistant" and not (
            message.get("content") or message.get("tool_calls")
        ):
            yield f"found {message}"


@means("request", r"every tool message has str \(or non-empty list\) content")
def _(body):
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] == "tool" and not (isinstance(content, str) or content):
            yield f"found {message}"


@means("request", r"type\(content\) is str for system, user, assistant and tool messages")
def _(body):
    for message in body["messages"]:
        if not isinstance(message.get("content"), str):
            yield f"found {message}"


@means("request", r"first (\w+) message contains '(.*)' and '(.*)' in this order")
def _(body, role, one, other):
    message = next(m for m in body["messages"] if m["role"] == role)
    if not re.search(f"{re.escape(one)}.*{re.escape(other)}", str(message["content"]), re.DOTALL):
        yield f"it is {message}"


@means("request", r"no \{type:text\} block with text\.strip\(\) == ''")
def _(body):
    for message in body["messages"]:
        for block in _blocks(message):
            if block["type"] == "text" and not block["text"].strip():
                yield f"found {message}"


@means("request", r"no message with content \[\] or ''")
def _(body):
    for message in body["messages"]:
        if not message["content"]:
            yield f"found {message}"


@means("request", "roles alternate, first is user")
def _(body):
    roles = [message["role"] for message in body["messages"]]
    if roles != [("user", "assistant")[n % 2] for n in range(len(roles))]:
        yield f"the roles are {roles}"


@means("request", r"tool_result of (\w+) present")
def _(body, call_id):
    blocks = [block for message in body["messages"] for block in _blocks(message)]
    if call_id not in [block.get("tool_use_id") for block in blocks]:
        yield f"found {blocks}"


@means("message", r"holds '(.*)' and '(.*)'")
def _(message, one, other):
    if not re.search(f"{re.escape(one)}.*{re.escape(other)}", str(message["content"]), re.DOTALL):
        yield f"it is {message}"


@means("message", r"((?:tool_result \w+, )+)then (text '.*')(?: \(joined or separate\))?")
def _(message, results, texts):
    blocks = _blocks(message)
    ids = re.findall(r"tool_result (\w+)", results)
    behind = [block.get("text", "") for block in blocks[len(ids) :]]
    if [block.get("tool_use_id") for block in blocks[: len(ids)]] != ids:
        yield f"it does not begin with the results: {message}"
    if re.findall(r"text '(.*?)'", texts) != "\n".join(behind).split("\n"):
        yield f"it does not end with the texts: {message}"


def _blocks(message):
    """The content blocks of a message of Anthropic's API."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@means("no_message_between", r"assistant\(tool_calls\) and its tool messages")
def _(body):
    return request_problems(body)


@means("tool definition", r"parameters\.type == 'object' and parameters\.properties == \{\}")
def _(definition):
    parameters = _schema(definition)
    if parameters.get("type") != "object" or parameters.get("properties") != {}:
        yield f"the parameters are {parameters}"


@means("tool definition", r"input_schema\.type == 'object'")
def _(definition):
    if definition["input_schema"].get("type") != "object":
        yield f"the schema is {definition['input_schema']}"


@means("cache", "json bytes of tools equal in all three requests")
def _(cache):
    if len({json.dumps(body["tools"]) for body in cache.requests[0]}) != 1:
        yield "they differ"
    if len(cache.requests[0]) != 3:
        yield f"there were {len(cache.requests[0])} requests"


@means("cache", "equal for listing_1 and listing_2")
def _(cache):
    if len({json.dumps(requests[0]["tools"]) for requests in cache.requests}) != 1:
        yield "they differ"


@means("cache", "equal for both hash seeds")
def _(cache):
    if len(cache.by_seed) < 2 or len(set(cache.by_seed.values())) != 1:
        yield f"they differ: {cache.by_seed}"


@means("cache", "properties order zeta, alpha")
def _(cache):
    for tool in cache.requests[0][0]["tools"]:
        if list(tool["function"]["parameters"]["properties"]) != ["zeta", "alpha"]:
            yield f"found {tool}"


@means(
    "cache",
    r"messages\[:len\(previous\)\] equal to the previous request's messages \(no time stamps or random ids\)",
)
def _(cache):
    for requests in cache.requests:
        for previous, later in itertools.pairwise(requests):
            if later["messages"][: len(previous["messages"])] != previous["messages"]:
                yield "the beginning changed"


# -- loops ------------------------------------------------------------------------------------------------------------


@means("always", r"an answer within ([\d.]+) s")
def _(stage, seconds):
    if stage.took_s[0] > float(seconds):
        yield f"it took {stage.took_s[0]:.2f} s"


@means("always", "the process lives")
def _(stage):
    if not stage.answers:
        yield "no answer came"


@means("always", "start and end event for the call")
def _(stage):
    for call in stage.first.tool_calls:
        names = [
            type(event).__name__
            for event in stage.of_kind("ToolExecStartEvent", "ToolExecEndEvent")
            if event.tool_call_id == call.id
        ]
        if names != ["ToolExecStartEvent", "ToolExecEndEvent"]:
            yield f"the events are {names}"


@means("always", "a following prompt works")
def _(stage):
    answer = stage.ask("And now?")
    if answer.failed or not answer.text:
        yield f"it gave {answer}"
    yield from request_problems(stage.requests[-1])


@means("always", "second request is valid")
def _(stage):
    return request_problems(stage.requests[1])


@means("always", "final_text '(.*)'")
def _(stage, text):
    if stage.answers[0].text != text:
        yield f"it is {stage.answers[0].text!r} ({stage.answers[0].error_message})"


@means("run", r"stop in \{(.*)\}, or final_text '(.*)' after an error result")
def _(stage, stops, text):
    answer = stage.answers[0]
    if answer.stop_reason not in stops.split(", ") and answer.text != text:
        yield f"the run gave {answer}"


@means("tool table", r"text == '(.*)'")
def _(stage, text):
    return result_problems({"text": text}, _only(stage))


@means("tool table", r"json\.loads\(text\) == (.*)")
def _(stage, value):
    expected = ast.literal_eval(value.replace("true", "True").replace("null", "None"))
    if not same(json.loads(_only(stage).text), expected):
        yield f"the text is {_only(stage).text!r}"


@means("tool table", r"non-empty text, isError false")
def _(stage):
    if _only(stage).is_error:
        yield "it is an error"
    yield from _said(stage)


@means(
    "tool table", r"non-empty text(?: that encodes to UTF-8)?(?: on the wire)?(?:,? or isError)?"
)
def _(stage):
    return _said(stage)


@means("tool table", r"text with 0,1,2 in order, or isError; not '<generator'")
def _(stage):
    result = _only(stage)
    if "<generator" in result.text or not (
        result.is_error or re.search("0.*1.*2", result.text, re.DOTALL)
    ):
        yield f"the text is {result.text!r}"


def _only(stage):
    return stage.results[0]


def _said(stage):
    """Say where the tool message of the second request has no text."""
    message = next(m for m in stage.requests[1]["messages"] if m["role"] == "tool")
    if not isinstance(message["content"], str) or not message["content"]:
        yield f"the message is {message}"
    else:
        message["content"].encode()


@means("result", r"(.*), isError (true|false)")
def _(stage, text, is_error):
    return result_problems({"text": text, "isError": is_error == "true"}, _only(stage))


@means("result", r"isError (true|false), mentions (\w+)")
def _(stage, is_error, word):
    return result_problems({"isError": is_error == "true", "mentions": word}, _only(stage))


@means("reported", "at least one log record or warning that contains the exception")
def _(stage):
    if not stage.reports():
        yield "nothing was reported"


@means("after_end", r"no event with '(.*)' within ([\d.]+) s")
def _(stage, word, seconds):
    stage.wait_for_event(float(seconds), lambda event: word in repr(event))
    if found := [
        event for event in stage.events if word in repr(getattr(event, "partial_result", ""))
    ]:
        yield f"found {found}"


@means(
    "third_request",
    r"messages after the user message: assistant\(4 calls\), 4 tool messages with texts 'value 1'\.\.'value 4' in call "
    r"order, assistant\(1 call\), tool 'value 5'; the 4 ids of the first assistant message are distinct and non-empty "
    r"and equal the tool_call_id of the results in order; the later call's id equals its result's",
)
def _(stage):
    messages = stage.requests[2]["messages"]
    start = next(i for i, m in enumerate(messages) if m["role"] == "user") + 1
    calls, results, later, last = (
        messages[start],
        messages[start + 1 : start + 5],
        *messages[start + 5 : start + 7],
    )
    ids = [call["id"] for call in calls["tool_calls"]]
    if len(ids) != 4 or len(set(ids)) != 4 or not all(ids):
        yield f"the ids are {ids}"
    if [m.get("tool_call_id") for m in results] != ids:
        yield f"the results are {results}"
    if [m["content"] for m in results] != [f"value {n}" for n in range(1, 5)]:
        yield f"the results are {results}"
    if [call["id"] for call in later["tool_calls"]] != [last.get("tool_call_id")]:
        yield f"the later call {later} is answered by {last}"
    if last["content"] != "value 5" or len(messages) != start + 7:
        yield f"the request ends with {messages[start + 5 :]}"


@means(
    "history", r"contains no message with '(.*)' unless it is marked as error/aborted and not sent"
)
def _(stage, text):
    for message in stage.messages:
        if text in getattr(message, "text", "") and not getattr(message, "failed", False):
            yield f"found {message}"
    for request in stage.requests:
        if text in json.dumps(request):
            yield "it was sent"


@means("same requests", "same messages")
def _(stage):
    return ()


@means("history list", r"(.*?)(?:; \(an aborted marker may follow\))?")
def _(stage, words):
    expected = re.split(r", (?=user|assistant|result)", words)
    messages = list(stage.messages)
    for item in expected:
        message = messages.pop(0) if messages else None
        yield from check("history item", item, _Item(message))
    if messages and not all(getattr(message, "failed", False) for message in messages):
        yield f"there is more: {messages}"


class _Item:
    def __init__(self, message):
        self.message = message
        self.results = [message]


@means("history item", "user")
def _(item):
    if not isinstance(item.message, UserMessage):
        yield f"it is {item.message}"


@means("history item", r"assistant\((\d+) calls?\)")
def _(item, count):
    if not isinstance(item.message, AssistantMessage) or len(item.message.tool_calls) != int(count):
        yield f"it is {item.message}"


@means("history item", r"result (\w+)(?: '(.*?)')? isError (true|false)(?: mentions (\w+))?")
def _(item, call_id, text, is_error, word):
    result = item.message
    if not isinstance(result, ToolResultMessage) or not result.tool_call_id.endswith(call_id):
        yield f"it is {result}"
        return
    expected = {"isError": is_error == "true", "text": text, "mentions": word}
    yield from result_problems({k: v for k, v in expected.items() if v is not None}, result)


@means("history list after abort", "all three get an error result, none runs")
def _(stage):
    if [result.is_error for result in stage.results] != [True, True, True]:
        yield f"the results are {stage.results}"
    if stage.runs.made:
        yield f"{stage.runs.made} ran"
