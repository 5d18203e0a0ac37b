"""Scenes with threads and times, each in a process of its own: the kind `threads`.

Run as `python -m tests.cases.drive_threads FOLDER [linger]`: drives one case, prints what came of it as one line of
JSON, and ends; with a tool's thread still stuck, unless it lingers until the thread is done.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.cases.stage import (
    PATIENCE_S,
    Runs,
    Stage,
    body_answers,
    copy_tools,
    importable,
    loaded,
    wait,
)
from tests.cases.vocabulary import result_problems
from tests.support.http_server import Answer, json_answer
from yiemagent import (
    AgentEndEvent,
    AgentStateError,
    AssistantMessage,
    ChannelFull,
    MessageEndEvent,
    ResponseTimeout,
    ToolExecStartEvent,
    abort_agent,
    follow_up,
    run_agent,
    stop_agent,
    take_response,
)

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 60.0
EXIT_S = 3.0


# -- outside: the process ---------------------------------------------------------------------------------------------


def drive_in_process(case):
    """Drive the case in a process of its own, and note what it says."""
    modes = [[], ["linger"]] if case.has("events_after_end") else [[]]
    for mode in modes:
        command = [sys.executable, "-m", "tests.cases.drive_threads", str(case.folder), *mode]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            timer = threading.Timer(LIMIT_S, process.kill)
            timer.start()
            line = process.stdout.readline()
            said_at = time.monotonic()
            code = process.wait()
            timer.cancel()
            _note(case, line, code, time.monotonic() - said_at)


def _note(case, line, code, exit_s):
    if not line:
        case.problem("process", [f"it said nothing within {LIMIT_S:g} s and ended with {code}"])
        return
    said = json.loads(line)
    case.problem("process", said["problems"])
    for name in said["driven"]:
        case.field(name)
    for name in said["inputs"]:
        case.take(name)
    case.take_tools()
    if code != 0:
        case.problem("process", [f"it ended with {code}"])
    if exit_s > EXIT_S:
        case.problem("process_exit", [f"it took {exit_s:.1f} s to end"])


# -- inside: the scenes -----------------------------------------------------------------------------------------------


def drive_scene(case, *, linger):
    """Drive the one scene that the case's input describes."""
    for name in case.inputs(".py"):
        case.take(name)
    (name,) = case.inputs(".json")
    data = case.data(name)
    if "caller_sets" in data:
        _drive_context(case, data)
    elif "abort_after_s" in data:
        _drive_stuck(case, data, linger=linger)
    elif set(data) <= set(_CHANNELS) and data:
        for key in data:
            _CHANNELS[key](case, data[key])
    else:
        case.problem(name, [f"can't drive a scene of {sorted(data)}"])


def _drive_context(case, data):
    module = case.inputs(".py")[0].removesuffix(".py")
    with importable(case.folder), tempfile.TemporaryDirectory() as folder:
        variable = __import__(module).REQ
        tools = loaded(copy_tools(case.take_tools(), Path(folder)))
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        texts = case.field("tool_texts")
        expected = case.field("caller_value_after")
        for mode, place in itertools.product(data["modes"], data["run_from"]):
            where = f"{mode} from the {place}"

            def scene(
                value=data["caller_sets"], wanted=texts, after=expected, mode=mode, where=where
            ):
                variable.set(value)
                with Stage(
                    body_answers(data["turns"]), tools, stream=False, tool_execution=mode
                ) as stage:
                    answer = stage.ask()
                    found = [result.text for result in stage.results]
                if answer.text != "done" or found != wanted:
                    case.problem(where, [f"the texts are {found}, the answer {answer}"])
                if variable.get() != after:
                    case.problem(where, [f"the caller's value is {variable.get()!r}"])

            _from(place, scene, case, where)
        words = case.field("second_agent_in_other_thread")
        if words != "with its own value 'r-77' its tools see r-77":
            case.problem("second agent", ["can't drive these words"])
        _two_at_once(case, scene)
        after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        if (
            case.field("signals") != "signal.getsignal(SIGINT) and SIGTERM unchanged"
            or before != after
        ):
            case.problem("signals", [f"were {before}, are {after}"])
        case.field("exceptions")


def _from(place, scene, case, where):
    """Run a scene in the main thread or in a worker, each with a context of its own; nothing may leave it."""
    places = {
        "main thread": lambda work: work(),
        "worker thread": _in_thread,
    }
    if place not in places:
        case.problem(where, [f"can't drive run_from {place!r}"])
        return
    try:
        places[place](lambda: contextvars.copy_context().run(scene))
    except BaseException as error:  # the case asks that nothing is raised
        case.problem(where, [f"it raised {error!r}"])


def _in_thread(work):
    failed = []

    def guarded():
        try:
            work()
        except BaseException as error:  # carried over to the thread that waits
            failed.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _two_at_once(case, scene):
    threads = [
        threading.Thread(
            target=contextvars.copy_context().run, args=(scene, value, [value] * 3, value)
        )
        for value in ("r-42", "r-77")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _drive_stuck(case, data, *, linger):
    with tempfile.TemporaryDirectory() as folder:
        tools = loaded(copy_tools(case.take_tools(), Path(folder)), Runs())
        began = []

        def abort_later(event):
            if isinstance(event, ToolExecStartEvent):
                began.append(time.monotonic())
                threading.Timer(data["abort_after_s"], abort_agent, args=(stage.agent,)).start()

        stage = Stage(body_answers(data["turns"]), tools, stream=False, sink=abort_later)
        answer = stage.ask()
        took_s = time.monotonic() - began[0]
        if took_s > case.field("returns_within_s"):
            case.problem("returns_within_s", [f"it took {took_s:.1f} s"])
        if answer.stop_reason != case.field("stop"):
            case.problem("stop", [f"the answer is {answer}"])
        if case.field("result") != "isError true, mentions abort":
            case.problem("result", ["can't drive these words"])
        case.problem(
            "result", result_problems({"isError": True, "mentions": "abort"}, stage.results[0])
        )
        expected = case.field("next_prompt")
        again = stage.ask("Once more.")
        if again.text != expected["final_text"] or stage.took_s[1] > expected["within_s"]:
            case.problem("next_prompt", [f"after {stage.took_s[1]:.1f} s it is {again}"])
        if linger:
            stuck = [thread for thread in threading.enumerate() if "-tool-" in thread.name]
            for thread in stuck:
                thread.join(31)
        _nothing_after_end(case, stage)
        case.field("process_exit")
        stop_agent(stage.agent, timeout_s=0)
        stage.server.close()


def _nothing_after_end(case, stage):
    if case.field("events_after_end") != "none for this call, also after 31 s":
        case.problem("events_after_end", ["can't drive these words"])
    ended = False
    for event in stage.events:
        if ended and getattr(event, "tool_call_id", None) == ended:
            case.problem("events_after_end", [f"found {event}"])
        if type(event).__name__ == "ToolExecEndEvent":
            ended = event.tool_call_id


# -- channels ---------------------------------------------------------------------------------------------------------


def _drive_late_follow_up(case, data):
    expected = case.field("a")
    moments = {
        "taken_if_sent_at_message_end": MessageEndEvent,
        "taken_if_sent_at_agent_end": AgentEndEvent,
    }
    if data["follow_up_at"] != "assistant message end, and again in a second run at agent end":
        case.problem("a", ["can't drive these words"])
    for key, moment in moments.items():
        held = []

        def sink(event, moment=moment, held=held):
            message = getattr(event, "message", None)
            fits = isinstance(event, moment) and (
                moment is AgentEndEvent or isinstance(message, AssistantMessage)
            )
            if fits and not held:
                held.append(follow_up(stage.agent, "B"))

        with Stage([json_answer(body) for body in data["turns"]], stream=False, sink=sink) as stage:
            began = time.monotonic()
            run_agent(stage.agent, "A")
            taken = [take_response(stage.agent, PATIENCE_S).text for _ in expected[key]]
            took_s = time.monotonic() - began
            if taken != expected[key] or took_s > expected["within_s"]:
                case.problem(f"a {key}", [f"taken were {taken} after {took_s:.1f} s"])
            with contextlib.suppress(ResponseTimeout):
                more = take_response(stage.agent, 0.2)
                case.problem(f"a {key}", [f"more could be taken: {more}"])
            second = json.dumps(stage.requests[1:])
            if (
                len(stage.requests) != expected["model_requests"]
                or expected["request_2_contains"] not in second
            ):
                case.problem(f"a {key}", [f"the requests are {stage.requests}"])


def _drive_aborted_queue(case, data):
    if case.field("b") != {
        "each_follow_up": "appears in a later request, or an event/return value names it as dropped"
    }:
        case.problem("b", ["can't drive these words"])
    hang = Answer(status=None, then="hang")
    answers = [hang, *(json_answer(body) for body in data["turns"][1:])]
    with Stage(answers, stream=False) as stage:
        run_agent(stage.agent, "Begin.")
        stage.server.wait_for(requests=1)
        for text in data["follow_ups"]:
            follow_up(stage.agent, text)
        wait(data["abort_after_s"])
        abort_agent(stage.agent)
        if take_response(stage.agent, PATIENCE_S).stop_reason != "aborted":
            case.problem("b", ["the run was not aborted"])
        run_agent(stage.agent, "Go on.")
        take_response(stage.agent, PATIENCE_S)
        left_over = [message.text for message in stop_agent(stage.agent, timeout_s=5)]
        sent = json.dumps(stage.requests[1:])
        for text in data["follow_ups"]:
            if f'"{text}"' not in sent and text not in left_over:
                case.problem("b", [f"{text!r} was lost: {sent}, {left_over}"])


def _drive_full_output(case, data):
    expected = case.field("c")
    words = "prompt() number 17.. may block or report full, but never deadlocks stop"
    if (
        expected["prompt_side"] != words
        or expected["threads_after"] != "no agent thread alive after 3 s"
    ):
        case.problem("c", ["can't drive these words"])
    with Stage([json_answer(data["turn"])], stream=False) as stage:
        for _ in range(data["prompts"]):
            try:
                run_agent(stage.agent, "More.", timeout_s=0.2)
            except ChannelFull:
                break
        began = time.monotonic()
        stop_agent(stage.agent, timeout_s=1)
        took_s = time.monotonic() - began
        if took_s > expected["stop_within_s"]:
            case.problem("c", [f"stop took {took_s:.1f} s"])
        try:
            while True:
                take_response(stage.agent, 0.5)
        except (AgentStateError, ResponseTimeout):
            pass
    ends_at = time.monotonic() + 3
    left_over = [thread for thread in threading.enumerate() if thread.name.startswith("yiem-")]
    for thread in left_over:
        thread.join(max(0.0, ends_at - time.monotonic()))
    if alive := [thread.name for thread in left_over if thread.is_alive()]:
        case.problem("c", [f"threads left: {alive}"])


_CHANNELS = {"a": _drive_late_follow_up, "b": _drive_aborted_queue, "c": _drive_full_output}


def main(folder, *mode):
    """Drive one case and say what came of it."""
    from tests.cases.case import Case

    case = Case(Path(folder))
    try:
        drive_scene(case, linger="linger" in mode)
    except BaseException as error:  # whatever it is, the process outside must hear of it
        case.problem("scene", [f"it raised {error!r}"])
    said = {
        "problems": case.problems,
        "driven": sorted(case._driven),
        "inputs": [name for name in case.inputs() if name not in case._inputs],
    }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
