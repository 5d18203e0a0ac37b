"""`yiemagent ask --mcp` with a reference server, and a model that follows a script."""

from __future__ import annotations

import shlex

import pytest

from tests.support.mcp_peers import node, reference_server
from yiemagent.cli.main import main
from yiemagent.testing import ScriptedServer, json_answer

pytestmark = [pytest.mark.peers, pytest.mark.time_limit(60)]


def completion(message):
    """An answer of a chat API."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json_answer({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]})


def test_a_reference_server_answers_a_question(capsys, monkeypatch):
    """The model is offered the server's tools, calls one, and tells what it gave."""
    function = {"name": "get-sum", "arguments": '{"a": 2, "b": 3}'}
    called = {"tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    server = shlex.join([node(), reference_server("everything"), "stdio"])
    with ScriptedServer(completion(called), completion({"content": "It is 5."})) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        words = ["--model", "openai:m", "--no-stream", "--no-builtin-tools", "--mcp", server]
        code = main(["ask", *words, "add 2 and 3 with the tool"])
        first, second = model.requests
    schemas = [tool["function"]["parameters"] for tool in first.json["tools"]]

    assert (code, capsys.readouterr().out) == (0, "It is 5.\n")
    assert second.json["messages"][-1]["content"] == "The sum of 2 and 3 is 5."
    assert all(schema["type"] == "object" and "properties" in schema for schema in schemas)
