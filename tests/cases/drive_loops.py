"""Scripted turns and tools: the kind `loop`."""

from __future__ import annotations

import copy
import itertools
import json
import re
import tempfile
import threading
from pathlib import Path

import attrs

from tests.cases import prose
from tests.cases.drive_streams import CHECKS, run_problems
from tests.cases.stage import (
    ANYTHING,
    Runs,
    Stage,
    body_answers,
    calling,
    copy_tools,
    done_answer,
    importable,
    loaded,
    wait,
)
from tests.cases.vocabulary import request_problems, result_problems, same
from tests.support.http_server import json_answer
from yiemagent import ToolStore, abort_agent, get_tools, list_tool, register_tool
from yiemagent.codec import dumps

INPUT_KEYS = {"turns", "calls", "prompts", "sinks", "noise_thread", "abort"}


def drive_tool_table(case):
    """Call each tool file of a case in an agent of its own: turn 1 calls it, turn 2 answers."""
    with _tools_of(case) as (tools, runs):
        table = case.field("table")
        for name in table:
            with Stage(
                body_answers([calling(name, arguments="{}")]),
                [tools[name]],
                runs=runs,
                stream=False,
            ) as stage:
                runs.made.clear()
                stage.ask()
                entry = table[name]
                if isinstance(entry, str):
                    case.problem(name, prose.check("tool table", entry, stage))
                else:
                    case.problem(name, _table_problems(entry, stage))
                for words in case.field("always", ()):
                    case.problem(name, prose.check("always", words, stage))


def _table_problems(entry, stage):
    about = {key: value for key, value in entry.items() if key not in {"final_text", "run"}}
    problems = result_problems(about, stage.results[0])
    if "final_text" in entry:
        problems += _final_text(entry["final_text"], stage)
    if "run" in entry:
        problems += prose.check("run", entry["run"], stage)
    return problems


def drive_loop(case, name, data):
    """Play scripted turns to an agent with the case's tools, in each variant that the case names."""
    if unknown := set(data) - INPUT_KEYS:
        case.problem(name, [f"can't drive the input {key}" for key in sorted(unknown)])
    with _tools_of(case) as (tools, runs):
        if "abort" in data:
            _drive_abort(case, data)
        elif "sinks" in data:
            for words in data["sinks"]:
                runs.made.clear()
                _drive_sink(case, data, words, tools, runs)
        else:
            _drive_plain(case, data, tools, runs)


class _tools_of:  # noqa: N801 - reads as a with block
    """The tools of a case: its files, and those that the expectation names; a context manager."""

    def __init__(self, case):
        self.case = case

    def __enter__(self):
        self.runs = Runs()
        self.folder = tempfile.TemporaryDirectory()
        self.path = importable(self.case.folder)
        self.path.__enter__()
        for name in self.case.inputs(".py"):
            self.case.take(name)
        tools = {}
        if (files := self.case.take_tools()) is not None:
            tools |= loaded(copy_tools(files, Path(self.folder.name)), self.runs)
        said = self.case.expect.get("tools")
        if isinstance(said, dict):
            self.case.field("tools")
            for name, fields in said.items():
                about = fields if isinstance(fields, dict) else {}
                tools[name] = self.runs.tool(
                    name, about.get("schema", ANYTHING), text=about.get("returns", "ok")
                )
        return tools, self.runs

    def __exit__(self, *_):
        self.path.__exit__(None, None, None)
        self.folder.cleanup()


def _turns(data):
    """The bodies of a script; bare calls make one turn."""
    if "turns" in data:
        return data["turns"]
    body = calling("x")
    body["choices"][0]["message"]["tool_calls"] = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in data["calls"]
    ]
    return [body]


def _drive_plain(case, data, tools, runs):
    seen = _live_module(case)
    prompts = data.get("prompts", 1)
    answers = [json_answer(body) for _ in range(prompts) for body in _turns(data)]
    answers = [*answers, done_answer(stream=False)]
    store = ToolStore("case")
    for tool in tools.values():
        register_tool(store, tool)
    with Stage(answers, tool_store=store, runs=runs, stream=False, sink=seen) as stage:
        noise = _Noise(store, data.get("noise_thread"))
        for _ in range(prompts):
            stage.ask()
        noise.join()
        _check_fields(case, stage)
        if "noise_thread" in data:
            case.problem("noise", noise.problems(case.field("noise"), stage))


def _live_module(case):
    """Where a case brings a module with an event SEEN, give a sink that sets it at the first update."""
    live = [name for name in case.inputs(".py") if b"SEEN" in (case.folder / name).read_bytes()]
    if not live:
        return None
    module = live[0].removesuffix(".py")

    def sink(event):
        if getattr(event, "partial_result", None) == "one":
            __import__(module).SEEN.set()

    return sink


class _Noise:
    """A thread that registers tools and lists them, as a case describes."""

    WORDS = "registers tool_000..tool_499 one by one and calls list_tools after each"

    def __init__(self, store, words):
        self.store = store
        self.words = words
        self.errors = []
        self.thread = threading.Thread(target=self._work, daemon=True)
        if words is not None:
            self.thread.start()

    def _work(self):
        runs = Runs()
        lister = list_tool(self.store)
        try:
            for number in range(500):
                register_tool(self.store, runs.tool(f"tool_{number:03}"))
                lister.execute("noise", {})
        except Exception as error:  # what it meets is what the case is about
            self.errors.append(error)

    def join(self):
        if self.words is not None:
            self.thread.join(30)

    def problems(self, expected, stage):
        if self.words != self.WORDS or expected != "no RuntimeError; at the end all 500 are listed":
            return ["can't drive these words"]
        names = set(get_tools(self.store))
        missing = [f"tool_{n:03}" for n in range(500) if f"tool_{n:03}" not in names]
        text = list_tool(self.store).execute("end", {}).text
        missing += [f"tool_{n:03} in the list" for n in range(500) if f"tool_{n:03}" not in text]
        counts = [len(request["tools"]) for request in stage.requests]
        shrunk = [pair for pair in itertools.pairwise(counts) if pair[1] < pair[0]]
        return (
            [f"errors: {self.errors}, missing: {missing}, shrinking: {shrunk}"]
            if (self.errors or missing or shrunk)
            else []
        )


# -- abort ------------------------------------------------------------------------------------------------------------

_ABORT = re.compile(r"inside (\w+)\((\w+)=(\d+)\), ([\d.]+) s before it returns '(.*)'")


def _drive_abort(case, data):
    found = _ABORT.fullmatch(data["abort"])
    if found is None:
        case.problem("abort", [f"can't drive {data['abort']!r}"])
        return
    name, key, number, seconds, text = found.groups()
    said = text.replace(number, f"<{key}>")
    with _abort_stage(
        data, name, said, lambda args: args[key] == int(number), float(seconds)
    ) as stage:
        answer = stage.ask()
        case.problem("runs", run_problems(case.field("runs"), stage))
        words = case.field("history_after_abort")
        case.problem("history", prose.check("history list", words, stage))
        if answer.stop_reason != case.field("run_stop"):
            case.problem("run_stop", [f"it is {answer}"])
        if len(stage.requests) != case.field("model_requests_first_run"):
            case.problem("model_requests", [f"there were {len(stage.requests)}"])
        case.problem("events", prose.check("always", "start and end event for the call", stage))
        second = case.field("second_prompt")
        case.problem("second prompt", _second_problems(second, stage))
    words = case.field("abort_before_batch")
    with _abort_stage(data, name, said, None, 0.0) as stage:
        stage.ask()
        case.problem(
            "abort before the batch", prose.check("history list after abort", words, stage)
        )


def _abort_stage(data, name, said, inside, seconds):
    """Give a stage whose run is aborted inside a call, or, with None, when the answer with the calls is whole."""
    runs = Runs()
    held = {}
    plain = runs.tool(name, text=said)

    def execute(tool_call_id, args, signal, on_partial_result):
        if inside is not None and inside(args):
            abort_agent(held["agent"])
            wait(seconds)
        return plain.function(tool_call_id, args, signal, on_partial_result)

    def sink(event):
        if (
            inside is None
            and type(event).__name__ == "MessageEndEvent"
            and event.message.role == "assistant"
        ):
            abort_agent(held["agent"])

    tool = attrs.evolve(plain, execute=execute)
    stage = Stage(body_answers(data["turns"]), [tool], runs=runs, stream=False, sink=sink)
    held["agent"] = stage.agent
    return stage


def _second_problems(expected, stage):
    answer = stage.ask("Once more.")
    problems = []
    for key, value in expected.items():
        if key == "final_text":
            problems += [] if answer.text == value else [f"the answer is {answer}"]
        elif key == "request_valid":
            problems += request_problems(stage.requests[-1])
        else:
            problems.append(f"can't drive the field {key}")
    return problems


# -- sinks ------------------------------------------------------------------------------------------------------------


def _sink(words):
    """Give the sink that words describe, and whether it raises; None where they can't be driven."""
    if found := re.fullmatch(r"sleep ([\d.]+) s on every event", words):
        return lambda _: wait(float(found[1])), False
    found = re.fullmatch(
        r"raise (\w+)(?:\('(.*)'\))? on (every event|tool start only|the first event)", words
    )
    if found is None:
        return None
    error = {"RuntimeError": RuntimeError, "ValueError": ValueError, "SystemExit": SystemExit}[
        found[1]
    ]
    count = itertools.count()

    def sink(event):
        number = next(count)
        starts = type(event).__name__ == "ToolExecStartEvent"
        if {"every event": True, "tool start only": starts, "the first event": number == 0}[
            found[3]
        ]:
            raise error(found[2] or "raised by the sink")

    return sink, True


def _drive_sink(case, data, words, tools, runs):
    made = _sink(words)
    if made is None:
        case.problem("sinks", [f"can't drive {words!r}"])
        return
    sink, raises = made
    expected = case.field("each_sink")
    with Stage(body_answers(data["turns"]), tools, runs=runs, stream=False, sink=sink) as stage:
        stage.ask()
        for key, value in expected.items():
            if key == "next_prompt_works":
                problems = prose.check("always", "a following prompt works", stage)
            elif key == "reported":
                problems = prose.check("reported", value, stage) if raises else []
            else:
                problems = check_field(case, key, value, stage)
            case.problem(f"sink: {words}", problems)


# -- fields -----------------------------------------------------------------------------------------------------------


def _check_fields(case, stage):
    for key in [key for key in case.expect if key in FIELDS]:
        case.problem(key, check_field(case, key, case.field(key), stage))


def check_field(case, key, value, stage):
    """Say where what was driven does not fit a field of an expectation."""
    if key not in FIELDS:
        return [f"can't drive the field {key}: {value!r}"]
    return list(FIELDS[key](value, stage))


def _final_text(expected, stage):
    answer = stage.answers[-1]
    if answer.text != expected:
        yield f"the answer is {answer.text!r} ({answer.stop_reason}, {answer.error_message})"


def _texts(expected, stage):
    texts = [result.text for result in stage.results]
    wanted = [expected] if isinstance(expected, str) else expected
    if texts != wanted:
        yield f"the texts are {texts}, expected {wanted}"


def _events_for_call(expected, stage):
    found = []
    for event in stage.of_kind("ToolExecStartEvent", "ToolExecUpdateEvent", "ToolExecEndEvent"):
        word = type(event).__name__.removeprefix("ToolExec").removesuffix("Event").lower()
        found.append(f"update {event.partial_result}" if word == "update" else word)
    if found != expected:
        yield f"the events are {found}, expected {expected}"


def _arguments(expected, held):
    for arguments in held:
        if not same(expected, arguments):
            yield f"found {arguments}, expected {expected}"
    if not held:
        yield "there are no calls"


def _details(words, stage):
    if (
        words
        != "the lock in details breaks neither history copies nor session saving (left out or as text)"
    ):
        yield "can't drive these words"
    for message in stage.messages:
        copy.deepcopy(message)
        dumps(message)


def _none(words, stage):
    if words != "none":
        yield f"can't drive {words!r}"
    failed = [answer for answer in stage.answers if answer.failed]
    if failed or any(result.is_error for result in stage.results):
        yield f"failed: {failed or stage.results}"


def _within(seconds, stage):
    if stage.took_s[0] > seconds:
        yield f"it took {stage.took_s[0]:.1f} s"


FIELDS = {
    **CHECKS,
    "within_s": _within,
    "returns_within_s": _within,
    "run_stop": CHECKS["stop"],
    "tool_runs": run_problems,
    "final_text": _final_text,
    "tool_texts": _texts,
    "tool_text": _texts,
    "tool_result": lambda words, stage: prose.check("result", words, stage),
    "events_for_call": _events_for_call,
    "after_end": lambda words, stage: prose.check("after_end", words, stage),
    "third_request": lambda words, stage: prose.check("third_request", words, stage),
    "history": lambda words, stage: prose.check("history", words, stage),
    "history_arguments": lambda value, stage: _arguments(
        value, [dict(call.arguments) for call in stage.first.tool_calls]
    ),
    "start_event_arguments": lambda value, stage: _arguments(
        value, [dict(event.arguments) for event in stage.of_kind("ToolExecStartEvent")]
    ),
    "replayed": lambda words, stage: prose.check("replay", words, stage),
    "details": _details,
    "exceptions": _none,
}
