"""The client as the conformance suite drives it: `python client.py URL`; the scenario stands in the environment.

It does what any scenario may want: opens a connection in the era that is asked for, lists all there is, and calls each
tool, reads each resource and gets each prompt once.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from yiemagent.errors import McpError
from yiemagent.mcp.client import McpClient
from yiemagent.mcp.versions import is_stateless

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")

SAMPLES = {"number": 2, "integer": 2, "boolean": True, "array": [], "object": {}}


def arguments_for(tool, tools):
    """Arguments that fit a tool's schema; the schema of another tool where one is wanted."""
    schema = tool.get("inputSchema") or {}
    properties = schema.get("properties") or {}
    found = {
        name: SAMPLES.get(properties[name].get("type"), "text")
        for name in schema.get("required") or ()
    }
    if "schema" in properties:
        found["schema"] = next(other["inputSchema"] for other in tools if other is not tool)
    return found


def call_all(client, tools):
    """Call every tool, all at once."""
    calls = CONTEXT.get("toolCalls") or [
        {"name": tool["name"], "arguments": arguments_for(tool, tools)} for tool in tools
    ]

    def call(wanted):
        try:
            print(wanted["name"], client.call_tool(wanted["name"], wanted["arguments"]))
        except McpError as error:
            print(wanted["name"], error)

    threads = [threading.Thread(target=call, args=(wanted,)) for wanted in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    era = "modern" if is_stateless(VERSION) else "legacy"
    if (
        SCENARIO == "json-schema-ref-no-deref"
    ):  # its server shakes hands, whatever version is asked for
        era = "auto"
    with McpClient(
        sys.argv[-1],
        protocol=era,
        timeout_s=None,  # the suite has a limit of its own, and starts all scenarios at once
        max_concurrency=None,
        elicitation=lambda params: {},
        sampling=lambda params: "text",
        roots=["file:///tmp"],
    ) as client:
        facts = client.connect()
        call_all(client, client.list_tools())
        if facts.can("resources") or SCENARIO == "http-standard-headers":
            for resource in client.list_resources():
                client.read_resource(resource["uri"])
        if facts.can("prompts") or SCENARIO == "http-standard-headers":
            for prompt in client.list_prompts():
                client.get_prompt(prompt["name"])


main()
