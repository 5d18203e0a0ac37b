"""What a server does to a connection, and when it asks to come back: the kind `http_script`."""

from __future__ import annotations

import concurrent.futures
import email.utils
import itertools
import json
import re
import time

from tests.cases.drive_loops import FIELDS, check_field
from tests.cases.stage import Runs, Stage, done_answer, provider
from tests.support.http_server import Answer, ScriptedServer, json_answer
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import ContextOverflowError
from yiemagent.history import check
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, UserMessage
from yiemagent.net.retry import RetryPolicy
from yiemagent.sessions import Compaction

WORDS = "no sleep; error mentions the delay (86400 s or 24 h); one request only"
NO_RETRY = "exactly one request, stop error, provider message kept"
THEN = "final text 'ok' after exactly two requests (not for the limit row)"
BACKOFF = "normal backoff, no exception"
LONGEST_BACKOFF_S = 20.0
SHORTENED = "second request body is smaller than the first and not equal to it; final text 'ok'"
HOPELESS = "ends with stop error within 4 requests, history still usable"
AFTER_OVERFLOW = [
    "the next request is the summary request or a shortened one",
    "then answer 'ok'",
]


def drive_script(case, script):
    """Play a script of responses to an agent and check what comes of it, or the acceptable alternative."""
    runs = Runs()
    tools = [runs.tool(name) for name in case.field("tools", {})]
    with Stage([_answer(case, item) for item in script], tools, runs=runs) as stage:
        stage.ask()
        known = (*FIELDS, "request_2_equals_3")
        expected = {key: case.field(key) for key in known if case.has(key)}
        problems = _script_problems(case, expected, stage)
        if problems and case.has("acceptable"):
            kept = {key: expected[key] for key in ("history",) if key in expected}
            other = _script_problems(case, kept | case.field("acceptable"), stage)
            problems = [*problems, *other] if other else []
        case.field("acceptable")
        case.problem("script", problems)


def _answer(case, item):
    data = case.take(item["sse"]) if "sse" in item else json.dumps(item.get("body", {})).encode()
    kind = "text/event-stream" if "sse" in item else "application/json"
    headers = [("Content-Type", kind), *item.get("headers", {}).items()]
    then = _ENDINGS.get(item.get("then", "hang_s" if "hang_s" in item else "close"))
    if then is None:
        case.problem("script", [f"can't drive then {item['then']!r}"])
    # A reset overtakes bytes that nobody has read yet.
    steps = [data, 0.1] if then == "reset" else [data]
    return Answer(
        steps, status=item.get("status", 200), headers=headers, length=False, then=then or "close"
    )


# The server gives its last answer again and again, so a repeated one just ends.
_ENDINGS = {"close": "close", "repeat": "close", "reset": "reset", "hang_s": "hang"}


def _script_problems(case, expected, stage):
    problems = []
    for key, value in expected.items():
        if key == "request_2_equals_3":
            pair = [request["messages"] for request in stage.requests[1:3]]
            problems += [] if len(pair) == 2 and pair[0] == pair[1] else ["the requests differ"]
        else:
            problems += check_field(case, key, value, stage)
    return problems


# -- contexts that are too long ---------------------------------------------------------------------------------------


def drive_overflow(case, data):
    """Answer with each row's failure, then well: which are told as an overflow, and what an agent makes of each."""
    expected, others = case.field("overflow"), case.field("false_rows", {})
    for row in data["rows"]:
        who, answer = row["who"], _failure(row)
        with ScriptedServer(answer) as server:
            context = LlmContext("", [UserMessage("Go.")])
            once = provider(server, retry=RetryPolicy(max_retries=0))
            *_, last = once(context, StreamOptions(), AbortSignal())
        if isinstance(last.error, ContextOverflowError) is not expected[who]:
            case.problem(who, [f"it is told as {last.error!r}"])
        if who in others:
            case.problem(who, _outcome_problems(others[who], answer))
        elif expected[who]:
            case.problem(who, _shortened_problems(case, answer))
            case.problem(who, _hopeless_problems(case, answer))
    if data["script_after_overflow"] != AFTER_OVERFLOW:
        case.problem("script_after_overflow", ["can't drive these words"])


def _long_stage(*answers):
    """Give an agent with a history that has become too long, and with what keeps it within the window."""
    history = []
    for number in range(12):
        history += [UserMessage(f"question {number}"), AssistantMessage("answer " * 400)]
    return Stage(answers, messages=history, compaction=Compaction())


def _shortened_problems(case, failing):
    if (words := case.field("true_rows")) != SHORTENED:
        return [f"can't drive {words!r}"] if words else []
    with _long_stage(failing, done_answer("ok")) as stage:
        answer = stage.ask()
        first, second = stage.bodies[:2]
    good = answer.text == "ok" and first != second and len(second) < len(first)
    return [] if good else [f"{len(second)} bytes followed {len(first)}, and {answer} came of it"]


def _hopeless_problems(case, failing):
    if (words := case.field("always_overflow_server")) != HOPELESS:
        return [f"can't drive {words!r}"] if words else []
    refuses = [True]
    good_answer = done_answer("ok")
    with _long_stage(lambda _request: failing if refuses else good_answer) as stage:
        answer = stage.ask()
        asked = len(stage.requests)
        refuses.clear()
        then = stage.ask()
        faults = [fault for fault in check(stage.messages) if "is left out" not in fault]
    good = answer.stop_reason == "error" and asked <= 4 and then.text == "ok" and not faults
    return [] if good else [f"it gave {answer} after {asked} requests, then {then}, with {faults}"]


def _failure(row):
    body = row["body"]
    if isinstance(body, str):
        return Answer(body.encode(), status=row["status"], headers=[("Content-Type", "text/plain")])
    return json_answer(body, status=row["status"])


def _outcome_problems(words, failing):
    with Stage([failing, done_answer()]) as stage:
        answer = stage.ask()
        asked = len(stage.requests)
    retried = answer.text == "done" and asked == 2
    failed = answer.stop_reason == "error" and asked == 1
    good = {"retried": retried, "retried after a delay": retried, "error, no compaction": failed}
    if words not in good:
        return [f"can't drive {words!r}"]
    return [] if good[words] else [f"it gave {answer} after {asked} requests"]


# -- waits ------------------------------------------------------------------------------------------------------------


def drive_waits(case, data):
    """Answer with failures and their headers, then well; check how long the provider waited and how often it asked."""
    rows = [(f"row {n} {row['value']!r}", row) for n, row in enumerate(data.get("rows", ()))]
    jobs = [(where, row, True) for where, row in rows]
    jobs += [(f"status {s}", {"status": s}, True) for s in data.get("retry_statuses", ())]
    jobs += [(f"status {s}", {"status": s}, False) for s in data.get("no_retry_statuses", ())]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        played = list(pool.map(lambda job: _wait_for(data, job[1]), jobs))
    limits = {entry["value"]: entry for entry in case.field("wait_s", ())}
    tolerance = case.field("tolerance_s", 0.0)
    words = case.field("then")
    if words not in {THEN, None}:
        case.problem("then", [f"can't drive {words!r}"])
    if case.field("no_retry") not in {NO_RETRY, None}:
        case.problem("no_retry", ["can't drive these words"])
    for (where, row, retried), outcome in zip(jobs, played, strict=True):
        limit = (
            limits.get(row.get("value"), {"rule": BACKOFF}) if "value" in row or retried else None
        )
        case.problem(where, _wait_problems(outcome, limit, tolerance))


def _wait_for(data, row):
    """Give the answer, the waits between the requests, and the whole time."""
    arrived = []

    def failing(_request):
        arrived.append(time.monotonic())
        headers = [(row["header"], _header(row["value"]))] if "header" in row else []
        body = {"error": {"message": "the provider says no", "type": "test"}}
        return json_answer(body, status=row["status"], headers=headers)

    def good(_request):
        arrived.append(time.monotonic())
        return json_answer(data["good_body"])

    with Stage(
        [failing, good], stream=False, max_retry_delay_ms=data.get("max_retry_delay_ms", 60_000)
    ) as stage:
        answer = stage.ask()
        waits = [later - earlier for earlier, later in itertools.pairwise(arrived)]
        return answer, waits, stage.took_s[0]


def _header(value):
    found = re.fullmatch(r"HTTPDATE(-NOZONE)?:([+-]\d+)", value)
    if found is None:
        return value
    text = email.utils.formatdate(time.time() + int(found[2]), usegmt=True)
    return text.removesuffix(" GMT") if found[1] else text


def _wait_problems(outcome, limit, tolerance):
    answer, waits, took_s = outcome
    if limit is None:
        good = (
            answer.stop_reason == "error"
            and not waits
            and "says no" in (answer.error_message or "")
        )
        return [] if good else [f"it gave {answer} after the waits {waits}"]
    if limit.get("rule") == WORDS:
        named = re.search(r"86400|86 400|24 ?h", answer.error_message or "")
        good = answer.stop_reason == "error" and not waits and named and took_s < 2
        return [] if good else [f"it gave {answer} after the waits {waits}, {took_s:.1f} s"]
    if answer.text != "ok" or len(waits) != 1:
        return [f"it gave {answer} after the waits {waits}"]
    if limit.get("rule") == BACKOFF:
        return [] if waits[0] < LONGEST_BACKOFF_S else [f"it waited {waits[0]:.2f} s"]
    if "rule" in limit:
        return [f"can't drive the rule {limit['rule']!r}"]
    good = limit["min"] - tolerance <= waits[0] <= limit["max"] + tolerance
    return (
        [] if good else [f"it waited {waits[0]:.2f} s, expected {limit['min']} to {limit['max']} s"]
    )
