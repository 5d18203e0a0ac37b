"""Drives a case: each of its inputs by its form, in whatever the case is a kind of."""

from __future__ import annotations

import json

from tests.cases.drive_handover import drive_replay
from tests.cases.drive_http import drive_overflow, drive_script, drive_waits
from tests.cases.drive_loops import drive_loop, drive_tool_table
from tests.cases.drive_mcp import FORMS as MCP_FORMS
from tests.cases.drive_requests import drive_history, drive_listings
from tests.cases.drive_rows import drive_rows, drive_schemas
from tests.cases.drive_sessions import drive_damage
from tests.cases.drive_streams import drive_body, drive_stream, drive_two_streams
from tests.cases.drive_threads import drive_in_process
from tests.cases.drive_tool_files import drive_steps, drive_tool_files
from tests.cases.drive_write_tool import drive_write_tool

KINDS = {
    "sse",
    "json_body",
    "http",
    "http_script",
    "prepare",
    "request",
    "loop",
    "mcp",
    "session",
    "threads",
    "tool_files",
    "write_tool",
}


def drive(case):
    """Drive a case and note where the library falls short, and what the runner can't drive."""
    if unknown := set(case.kinds) - KINDS:
        case.problem("kind", [f"can't drive the kind {kind!r}" for kind in sorted(unknown)])
    elif "threads" in case.kinds:
        drive_in_process(case)
    else:
        _drive_inputs(case)
    case.finish()


def _drive_inputs(case):
    for name in case.inputs(".json"):
        data = json.loads((case.folder / name).read_text(encoding="utf-8"))
        forms = MCP_FORMS if "mcp" in case.kinds else FORMS
        if form := next((form for form in forms if form in data), None):
            case.take(name)
            forms[form](case, name, data)
    for name in case.inputs():
        if name.endswith((".sse", ".body")) and not {"http", "http_script"} & set(case.kinds):
            drive_stream(case, name)
    if case.has("two_requests"):
        drive_two_streams(case)
    if case.has("next_request_assistant_content"):
        drive_replay(case)
    if "loop" in case.kinds and case.tool_inputs() and not case.inputs(".json"):
        drive_tool_table(case)
    if "tool_files" in case.kinds and case.tool_inputs():
        drive_tool_files(case)


# How an input is driven, by a key that only inputs of its form have.
FORMS = {
    "choices": drive_body,
    "history": drive_history,
    "arguments": lambda case, _name, data: drive_rows(case, data),
    "schemas": lambda case, _name, data: drive_schemas(case, data["schemas"]),
    "listing_1": drive_listings,
    "turns": drive_loop,
    "calls": drive_loop,
    "script_after_overflow": lambda case, _name, data: drive_overflow(case, data),
    "script": lambda case, _name, data: drive_script(case, data["script"]),
    "good_body": lambda case, _name, data: drive_waits(case, data),
    "damage": lambda case, _name, data: drive_damage(case, data),
    "steps": lambda case, _name, data: drive_steps(case, data),
    "names_bad": lambda case, _name, data: drive_write_tool(case, data),
}
