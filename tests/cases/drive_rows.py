"""Tools and the arguments that models send them: the kind `prepare`."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import attrs

from tests.cases import prose
from tests.cases.case import for_api
from tests.cases.lines import api_of, definitions_for
from tests.cases.stage import CHAT, Runs, Stage, body_answers, calling, copy_tools, loaded
from tests.cases.vocabulary import result_problems, same

DEFAULTS_NOTE = "if defaults are filled in"


@attrs.define
class Row:
    """What came of one row of arguments."""

    id: str
    sent: str
    properties: dict
    runs: list
    result: object = None
    stored: object = None
    replayed: str = "{}"
    raised: object = None


def drive_rows(case, data):
    """Deliver each row of arguments as a call of its tool; check what the tool was run with, or was answered."""
    schemas = _schemas(data)
    before = json.dumps(schemas)
    rows = []
    for name, schema in schemas.items():
        for row_id, sent in data["arguments"].items():
            tool, _, _short = row_id.rpartition(".")
            if tool in {"", name}:
                rows.append(_deliver(name, schema, row_id, sent))
                expected = _expected(case, name, row_id, many=len(schemas) > 1)
                case.problem(
                    f"{name} row {row_id}", _row_problems(case, expected, rows[-1], schema)
                )
    if json.dumps(schemas) != before:
        case.problem("rows", ["a schema was changed"])
    _more(case, data, schemas, rows)


def _schemas(data):
    """The tools of an input by name, each with its schema."""
    if "tool" in data:
        return {data["tool"]["name"]: data["tool"].get("inputSchema")}
    tools = data["tools"]
    if isinstance(tools, dict):
        return tools
    return {tool["name"]: tool.get("inputSchema") for tool in tools}


def _deliver(name, schema, row_id, sent):
    runs = Runs()
    tool = runs.tool(name, schema)
    given = (
        {} if sent.get("field") == "missing" else {"arguments": sent.get("wire", sent.get("json"))}
    )
    row = Row(row_id, str(sent.get("wire", "")), (schema or {}).get("properties") or {}, [])
    with Stage(body_answers([calling(name, **given)]), [tool], runs=runs, stream=False) as stage:
        try:
            answer = stage.ask()
        except Exception as error:  # whatever leaves the loop is what the case is about
            row.raised = error
            return row
        if answer.text != "done":
            row.raised = answer
            return row
        row.result = stage.results[0]
        row.stored = stage.first.tool_calls[0]
        row.replayed = stage.requests[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"]
    row.runs = [run["args"] for run in runs.made]
    return row


def _expected(case, tool, row_id, *, many):
    results = case.field("results")
    if many and tool in results and row_id in results[tool]:
        return results[tool][row_id]
    return results.get(row_id)


def _row_problems(case, expected, row, schema):
    if row.raised is not None:
        return [f"it raised {row.raised!r}"]
    if expected is None:
        return ["can't drive this row: nothing is expected of it"]
    accepted = [expected]
    if case.has(f"{row.id}_alternative"):
        accepted.append(case.field(f"{row.id}_alternative"))
    found = [_outcome_problems(case, entry, row, schema) for entry in accepted]
    return [] if not all(found) else found[0]


def _outcome_problems(case, expected, row, schema):
    problems = []
    for key, value in expected.items():
        if key == "any_of":
            found = [_outcome_problems(case, entry, row, schema) for entry in value]
            problems += [] if not all(found) else found[0]
        elif key == "runs_with":
            problems += _run_problems(case, value, row, schema)
        elif key == "runs_with_text":
            problems += _run_problems(case, json.loads(value), row, schema)
        elif key == "error_result":
            problems += [f"it ran with {row.runs}"] if row.runs else []
            problems += result_problems({"isError": True, **value}, row.result)
        elif key == "must_not":
            problems += [p for words in value for p in prose.check("rows", words, [row])]
        else:
            problems.append(f"can't drive the field {key} of a row")
    return problems


def _run_problems(case, value, row, schema):
    accepted = [value]
    if DEFAULTS_NOTE in str(case.expect.get("note")):
        properties = (schema or {}).get("properties", {})
        defaults = {
            k: p["default"] for k, p in properties.items() if isinstance(p, dict) and "default" in p
        }
        accepted.append({**defaults, **value})
    if any(same([entry], row.runs) for entry in accepted):
        return []
    said = f", answered {row.result.text!r}" if not row.runs else ""
    return [f"it ran with {row.runs}{said}, expected {value}"]


def _more(case, data, schemas, rows):
    """What a case says about all its rows."""
    for words in case.field("must_not", ()):
        case.problem("rows", prose.check("rows", words, rows))
    for name in ("replay", "note", "history"):
        words = for_api(case.expect.get(name), CHAT)
        if isinstance(words, str) and words not in prose.NOTES and not _streams(case, name):
            case.field(name)
            case.problem("rows", prose.check("rows", words, rows))
    if case.has("outgoing"):
        words, tools = case.field("outgoing"), [Runs().tool(*pair) for pair in schemas.items()]
        for api in ("openai-chat", "anthropic-messages"):
            definitions = definitions_for(api, tools)
            case.problem(f"outgoing {api}", prose.check("outgoing", words, definitions))
    for name in [name for name in case.expect if name.startswith("twice_row_")]:
        _twice(case, data, name)
    if case.has("schema_after") and case.field("schema_after") != "json equal to before":
        case.problem("schema_after", ["can't drive these words"])


def _streams(case, name):
    return name == "replay" and case.inputs(".sse")


def _twice(case, data, field):
    """Call the tool file of a case twice with the same row, in one agent."""
    row = data["arguments"][field.removeprefix("twice_row_")]
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs()
        tools = loaded(copy_tools(case.take_tools(), Path(folder)), runs)
        ((name, tool),) = tools.items()
        before = json.dumps(tool.input_schema)
        bodies = [calling(name, f"call_{turn}", arguments=row["wire"]) for turn in range(2)]
        with Stage(body_answers(bodies), [tool], runs=runs, stream=False) as stage:
            stage.ask()
            texts = [result.text for result in stage.results]
        if texts != case.field(field):
            case.problem(field, [f"the texts are {texts}"])
        if json.dumps(tool.input_schema) != before:
            case.problem("schema_after", ["the schema was changed"])


def drive_schemas(case, schemas):
    """Register, send and call a tool with each schema."""
    each = case.field("each")
    said = {api: each[api] for api in each if api != "call_with"}
    for row_id, schema in schemas.items():
        before = json.dumps(schema)
        runs = Runs()
        for api, words in said.items():
            if api_of(api) is None:
                case.problem(row_id, [f"can't drive the target {api}"])
                continue
            (definition,) = definitions_for(api_of(api), [runs.tool("t", schema)])
            case.problem(row_id, prose.check("tool definition", words, definition))
        for wire, outcome in each.get("call_with", {}).items():
            row = _deliver("t", schema, row_id, {"wire": wire})
            wanted = re.fullmatch(r"runs_with (\{.*\})", outcome)
            if wanted is None:
                case.problem(row_id, [f"can't drive {outcome!r}"])
            elif row.raised or not same(row.runs, [json.loads(wanted[1])]):
                case.problem(row_id, [f"{wire!r} gave {row}"])
        if json.dumps(schema) != before:
            case.problem(row_id, ["the schema was changed"])
