"""Calls `echo` with the official SDK, in a Python that has it: python -P mcp_sdk_worker.py CALLS URL|COMMAND…

A blocking program uses it with an event loop on a thread, so that is what is measured: `wall_s` is the median of a
blocking call, `cpu_s` the processor's time for each. `awaited_s` is the median of a call awaited on the loop itself.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time

import mcp
from mcp.client.stdio import stdio_client

ASKED = ("echo", {"text": "hi"})


def blocking(client, loop, count):
    """Call from a thread that waits; gives the median and the processor's time for each."""
    times, cpu = [], time.process_time()
    for _ in range(count):
        begun = time.perf_counter()
        result = asyncio.run_coroutine_threadsafe(client.call_tool(*ASKED), loop).result()
        times.append(time.perf_counter() - begun)
    cpu = time.process_time() - cpu
    assert result.content[0].text == "hi"
    return {"wall_s": statistics.median(times), "cpu_s": cpu / count}


async def awaited(client, count):
    """Call on the loop; gives the median."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        await client.call_tool(*ASKED)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def main(count, words):
    target = words[0]
    if not target.startswith("http"):
        target = stdio_client(mcp.StdioServerParameters(command=words[0], args=words[1:]))
    async with mcp.Client(target, mode="legacy") as client:
        await awaited(client, 20)
        found = {"awaited_s": await awaited(client, count)}
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def work():
            found.update(blocking(client, loop, count))
            loop.call_soon_threadsafe(done.set)

        threading.Thread(target=work).start()
        await done.wait()
    print(json.dumps(found))


asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
