"""Calls `echo` with our client, as mcp_sdk_worker.py does with the SDK's: python mcp_worker.py CALLS URL|COMMAND…"""

from __future__ import annotations

import json
import statistics
import sys
import time

from yiemagent.mcp.client import McpClient


def main(count, words):
    target = words[0] if words[0].startswith("http") else words
    with McpClient(target, protocol="legacy") as client:
        client.list_tools()
        for _ in range(20):
            client.call_tool("echo", {"text": "hi"})
        times, cpu = [], time.process_time()
        for _ in range(count):
            begun = time.perf_counter()
            result = client.call_tool("echo", {"text": "hi"})
            times.append(time.perf_counter() - begun)
        cpu = time.process_time() - cpu
    assert result["content"][0]["text"] == "hi"
    print(json.dumps({"wall_s": statistics.median(times), "cpu_s": cpu / count}))


main(int(sys.argv[1]), sys.argv[2:])
