"""The embedded model itself, with real tools: it answers the questions of `local_questions.json`."""

from __future__ import annotations

import json
import pathlib
import re
import time

import attrs
import pytest

from tests.support.weather_server import WeatherServer
from yiemagent import ToolStore, YiemAgent, ask, load_tools
from yiemagent.messages import ToolResultMessage
from yiemagent.providers.local import LocalModel, stop_servers
from yiemagent.providers.local_models import pull
from yiemagent.providers.local_recipe import RESULT_MARK
from yiemagent.registry import builtin_tools_dir

QUESTIONS = json.loads(
    pathlib.Path(__file__).with_name("local_questions.json").read_text(encoding="utf-8")
)["questions"]
RIGHT_AT_LEAST, OWN_WORDS_AT_LEAST = 17, 12


@attrs.frozen
class Row:
    """What became of one question."""

    question: str
    called: str
    answer: str
    is_right: bool
    is_own: bool
    seconds: float


@pytest.fixture(autouse=True)
def model_ends():
    """The model's process ends with the test."""
    yield
    stop_servers()


def holds(part, text, answer):
    """Whether an answer holds a part of a tool's result."""
    match part:
        case "time":
            return re.search(r"\d\d:\d\d", text).group() in answer
        case "temperature":
            degrees = re.search(r"-?\d+(?= °)", text).group()
            return re.search(rf"(?<![\d-]){degrees}(?!\d)", answer)
        case "sky":
            return re.search(r": ([^,]+),", text).group(1) in answer
        case _:
            return all(name in answer for name in re.findall(r"^- (\w+):", text, re.MULTILINE))


def row_of(question, store):
    """Ask one question, in a conversation of its own."""
    begun = time.monotonic()
    with YiemAgent(LocalModel(), tool_store=store) as agent:
        answer = ask(agent, question["question"])
        messages = agent.state.messages
    calls = [call for m in messages if m.role == "assistant" for call in m.tool_calls]
    results = [m for m in messages if isinstance(m, ToolResultMessage)]
    given = {**calls[0].arguments} if calls else {}
    if "units" not in question["arguments"] and given.get("units") == "celsius":
        del given["units"]
    right_call = len(calls) == 1 and calls[0].name == question["tool"]
    right_call = right_call and given == question["arguments"] and not results[0].is_error
    told = right_call and any(
        holds(part, results[0].text, answer.text) for part in question["holds"]
    )
    called = ", ".join(f"{call.name}({dict(call.arguments)})" for call in calls)
    is_own = not answer.text.startswith(RESULT_MARK)
    seconds = time.monotonic() - begun
    return Row(question["question"], called, answer.text, bool(told), is_own, seconds)


@pytest.mark.slow
@pytest.mark.time_limit(900)
@pytest.mark.parametrize("run", [1, 2])
def test_the_embedded_model_answers_the_questions(run, monkeypatch, show):
    """Of the 20 questions at least 17 are answered from the right call, at least 12 in the model's own words."""
    pull()
    store = ToolStore("builtin")
    load_tools(store, builtin_tools_dir())
    with WeatherServer() as weather:
        for name, value in weather.environment.items():
            monkeypatch.setenv(name, value)
        rows = [row_of(question, store) for question in QUESTIONS]
    right = [row for row in rows if row.is_right]
    own = [row for row in right if row.is_own]
    lines = [
        f"embedded model, run {run}: {len(right)} of {len(rows)} right, {len(own)} in its own words"
    ]
    for row in rows:
        mark = "own" if row in own else "yes" if row in right else "NO "
        answer = " / ".join(row.answer.splitlines())
        lines.append(f"{mark} {row.seconds:5.1f} s  {row.question:52} {row.called:58} {answer}")
    show("\n".join(lines))

    assert len(rows) == 20
    assert len(right) >= RIGHT_AT_LEAST
    assert len(own) >= OWN_WORDS_AT_LEAST
