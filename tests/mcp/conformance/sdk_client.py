"""A client of the official SDK: `python sdk_client.py MODE URL` or `… MODE COMMAND…`; prints what it found as JSON.

It runs in a Python that has the SDK, and knows nothing of this library.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import warnings

import mcp
import mcp_types as types
from mcp.client.stdio import stdio_client

warnings.simplefilter("ignore")


async def answer(_context, params):
    """Fill in the form."""
    return types.ElicitResult(action="accept", content={"name": "Ann"})


def target(words):
    """What to connect to: a URL, or a command."""
    if words[0].startswith("http"):
        return words[0]
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return stdio_client(
        mcp.StdioServerParameters(command=words[0], args=words[1:], env=environment)
    )


class Watch:
    """What came unasked."""

    def __init__(self):
        self.logs = []
        self.changed = 0
        self.told = asyncio.Event()

    async def log(self, params):
        """Keep a log message."""
        self.logs.append(params.data)

    async def message(self, message):
        """Count changes of the tools."""
        if "ToolListChanged" in type(message).__name__ or "ToolListChanged" in repr(message)[:200]:
            self.tell()

    def tell(self):
        """Note a change."""
        self.changed += 1
        self.told.set()

    async def listen(self, client, ready):
        """Listen for changes as the stateless era has it."""
        async with client.listen(tools_list_changed=True) as events:
            ready.set()
            async for _ in events:
                self.tell()


async def main(mode, words):
    """Do everything once."""
    watch, found, progress = Watch(), {}, []

    async def on_progress(done, total, message):
        progress.append(done)

    client = mcp.Client(
        target(words),
        mode=mode,
        elicitation_callback=answer,
        logging_callback=watch.log,
        log_level="info",
        message_handler=watch.message,
    )
    async with client:
        found["version"] = client.protocol_version
        if mode == "legacy":
            await client.set_logging_level("info")
        listed = await client.list_tools()
        found["tools"] = [tool.name for tool in listed.tools]
        found["text"] = (await client.call_tool("test_simple_text", {})).content[0].text
        mixed = await client.call_tool("test_multiple_content_types", {})
        found["kinds"] = [block.type for block in mixed.content]
        failed = await client.call_tool("test_error_handling", {})
        found["error"] = [failed.is_error, failed.content[0].text.partition(": ")[2]]
        await client.call_tool("test_tool_with_progress", {}, progress_callback=on_progress)
        await client.call_tool("test_tool_with_logging", {})
        greeting = await client.call_tool("test_input_required_result_elicitation", {})
        found["greeting"] = greeting.content[0].text
        found["resource"] = (await client.read_resource("test://static-text")).contents[0].text
        template = await client.read_resource("test://template/7/data")
        found["template"] = json.loads(template.contents[0].text)
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        found["prompt"] = prompt.messages[0].content.text
        ref = types.ResourceTemplateReference(uri="test://template/{id}/data")
        completed = await client.complete(ref, {"name": "id", "value": "1"})
        found["completion"] = completed.completion.values
        await changes(client, watch, mode)
    found |= {"progress": progress, "logs": watch.logs, "changed": watch.changed}
    print(json.dumps(found))


async def changes(client, watch, mode):
    """Have the tools change, and wait until that is told."""
    listening = None
    if mode != "legacy":
        ready = asyncio.Event()
        listening = asyncio.create_task(watch.listen(client, ready))
        await ready.wait()
    await client.call_tool("test_trigger_tool_change", {})
    await asyncio.wait_for(watch.told.wait(), 10)
    if listening is not None:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
