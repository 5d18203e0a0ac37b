"""Answers of a server, streamed in three ways or whole: the kinds `sse` and `json_body`."""

from __future__ import annotations

import contextlib
import re
from pathlib import PurePath

from tests.cases import prose
from tests.cases.case import for_api
from tests.cases.stage import (
    ANTHROPIC,
    ANYTHING,
    CHAT,
    Runs,
    Stage,
    cut_at,
    done_answer,
    pieces,
    provider,
)
from tests.cases.vocabulary import assistant_problems, result_problems, same
from tests.support.http_server import ScriptedServer, json_answer, sse_answer
from yiemagent import (
    AbortSignal,
    AgentContext,
    AgentLoopConfig,
    UserMessage,
    run_agent_loop,
)
from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions

# Fields that hold for each answer of a case, wherever they stand.
FIELDS = {
    "assistant",
    "ids",
    "events",
    "must_not",
    "replay",
    "runs",
    "results_in_history",
    "model_requests",
    "model_requests_after",
}
OPEN_SOCKET = (
    "the server closes cleanly after the bytes; for b also once with the socket left open 20 s: the turn must return "
    "within 2 s"
)


def drive_stream(case, name):
    """Play one streamed body in every way and check what comes of it each time."""
    data = case.take(name)
    api = ANTHROPIC if data.startswith(b"event: message_start") else CHAT
    expected, words = _take_fields(case, name, api)
    status, kind = _response(case, PurePath(name).stem)
    ways = list(pieces(data, status, kind))
    ways += [(f"cut at {at}", cut_at(data, at)) for at in _cuts(case)]
    if case.has("close"):
        ways += _left_open(case, name, data)
    for way, answer in ways:
        where = f"{name} {way}"
        answers = _answers(answer, expected, words, api)
        _play(case, where, answers, data, (expected, words), api=api)
        if expected.get("retryable") is not None:
            case.problem(where, _retry_problems(answer, expected["retryable"], api))


def drive_body(case, name, body):
    """Answer a request that does not stream with a body and check what comes of it."""
    expected, words = _take_fields(case, name, CHAT)
    answers = [json_answer(body), done_answer(stream=False)]
    _play(case, name, answers, str(body).encode(), (expected, words), stream=False)


def _take_fields(case, name, api):
    """Gather what a case expects of one answer: a dict of fields, and words of its table."""
    stem = PurePath(name).stem
    expected = {key: case.field(key) for key in FIELDS if case.has(key)}
    if api == ANTHROPIC and case.has("assistant_anthropic"):
        expected["assistant"] = case.field("assistant_anthropic")
    for key in ("each_input", name):
        if case.has(key):
            expected |= case.field(key)
    entry = case.field("table", {}).get(stem) if case.has("table") else None
    words = entry if isinstance(entry, str) else None
    if isinstance(entry, dict):
        expected |= entry
    if "replay" in expected:
        expected["replay"] = for_api(expected["replay"], api)
    return expected, words


def _answers(answer, expected, words, api):
    """An answer that must end as an error is given again to a retry, so that no other answer can hide it."""
    failing = expected.get("stop") == "error" or (words or "").startswith("error")
    return [answer] if failing else [answer, done_answer(api=api)]


def _response(case, stem):
    status, kind = 200, "text/event-stream"
    if case.has("responses"):
        first, _, kind = case.field("responses").get(stem, f"{status} {kind}").partition(" ")
        status = int(first)
    return status, kind


def _cuts(case):
    for name in case.inputs(".json"):
        data = case.data(name) if b'"cut_at"' in (case.folder / name).read_bytes() else {}
        yield from data.get("cut_at", ())


def _left_open(case, name, data):
    if case.field("close") != OPEN_SOCKET:
        case.problem("close", ["can't drive these words"])
    return [("left open", sse_answer(data, then="hang"))] if name.startswith("b_") else []


def _play(case, where, answers, data, asked, *, stream=True, api=CHAT):
    expected, words = asked
    runs = Runs()
    with Stage(answers, _tools(case, runs, data), runs=runs, stream=stream, api=api) as stage:
        stage.ask()
        case.problem(where, _problems(case, stage, expected))
        if words is not None:
            case.problem(where, prose.check("stream table", words, stage))
            if words.startswith("error") and case.has("error_means"):
                case.problem(where, prose.check("error_means", case.field("error_means"), stage))
        if where.endswith("left open") and stage.took_s[0] > 2:
            case.problem(where, [f"it took {stage.took_s[0]:.1f} s"])


def _tools(case, runs, data):
    """Every tool that the case or the answer names; the rest of the case says what they take."""
    said = case.field("tools", {}) if isinstance(case.expect.get("tools"), dict) else {}
    known = {
        name: fields.get("schema", ANYTHING)
        for name, fields in said.items()
        if isinstance(fields, dict)
    }
    names = re.findall(
        r"""["']name["']:\s*["']([A-Za-z0-9_-]{1,64})["']""", data.decode("utf-8", "replace")
    )
    names += [call["name"] for call in case.expect.get("assistant", {}).get("tool_calls", ())]
    names += [
        c["name"]
        for c in case.expect.get("each_input", {}).get("assistant", {}).get("tool_calls", ())
    ]
    return [runs.tool(name, known.get(name, ANYTHING)) for name in dict.fromkeys([*known, *names])]


def _problems(case, stage, expected):
    problems = []
    for key, value in expected.items():
        if key in CHECKS:
            problems += CHECKS[key](value, stage)
        elif key in {"ids", "events", "replay"}:
            problems += prose.check(key, value, stage) if value is not None else []
        elif key == "must_not":
            problems += [p for words in value for p in prose.check("must_not", words, stage)]
        elif key != "retryable":
            problems.append(f"can't drive the field {key}")
    return problems


def run_problems(expected, stage):
    """Say where the tools were not run as expected: so often, with these arguments, or with this one argument each."""
    made = stage.runs.made
    if isinstance(expected, int):
        good = len(made) == expected
    elif all(isinstance(run, dict) for run in expected):
        good = same(expected, made)
    else:
        good = same(expected, [next(iter(run["args"].values()), None) for run in made])
    return [] if good else [f"the runs are {made}, expected {expected}"]


def _results(expected, stage):
    problems = []
    for entry in expected:
        wanted = {key: value for key, value in entry.items() if key != "call"}
        ids = [call_id.strip() for call_id in entry["call"].split("/")]
        result = next(filter(None, map(stage.result, ids)), None)
        problems += result_problems(wanted, result)
    return problems


def _count(expected, found, what):
    return [] if expected == found else [f"{what} is {found}, expected {expected}"]


def _mentions(expected, stage):
    text = stage.answers[0].error_message or ""
    return (
        []
        if expected.lower() in text.lower()
        else [f"the error text is {text!r}, expected {expected!r}"]
    )


CHECKS = {
    "assistant": lambda expected, stage: assistant_problems(expected, stage.first),
    "runs": run_problems,
    "results_in_history": _results,
    "model_requests": lambda expected, stage: _count(
        expected, len(stage.requests), "model_requests"
    ),
    "model_requests_after": lambda expected, stage: _count(
        expected, len(stage.requests) - 1, "model_requests_after"
    ),
    "stop": lambda expected, stage: _count(expected, stage.answers[0].stop_reason, "stop"),
    "error_mentions": _mentions,
}


def _retry_problems(answer, retryable, api):
    """Ask the provider itself, whose error says whether asking again may help."""
    with ScriptedServer(answer) as server:
        context = LlmContext("", [UserMessage("Go.")])
        *_, last = provider(server, api=api)(context, StreamOptions(), AbortSignal())
    found = getattr(getattr(last, "error", None), "retryable", None)
    return [] if found is retryable else [f"retryable is {found}, expected {retryable}: {last!r}"]


# -- two streams as turns of one run ----------------------------------------------------------------------------------


def drive_two_streams(case):
    """Play all streams of a case as the turns of one run, each by its own API, and check what comes of all."""
    told = []
    more = iter([[UserMessage("More.")]] * (len(case.inputs(".sse")) - 1))
    with contextlib.ExitStack() as servers:
        asked = []
        for name in case.inputs(".sse"):
            data = case.take(name)
            api = ANTHROPIC if data.startswith(b"event: message_start") else CHAT
            server = servers.enter_context(ScriptedServer(sse_answer(data)))
            asked.append(provider(server, api=api))
        turns = iter(asked)

        def stream(context, options, signal):
            return next(turns)(context, options, signal)

        told += run_agent_loop(
            [UserMessage("Go.")],
            AgentContext(),
            AgentLoopConfig(get_follow_up_messages=lambda: next(more, ())),
            lambda _: None,
            stream_fn=stream,
        )
    case.problem("two_requests", prose.check("two_requests", case.field("two_requests"), told))
