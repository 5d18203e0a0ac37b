"""One event loop for the adapters of asynchronous frameworks, so that none is charged for its start."""

from __future__ import annotations

import asyncio

_loop = asyncio.new_event_loop()


def wait(awaitable):
    return _loop.run_until_complete(awaitable)


def gather(coroutines):
    async def together():
        return await asyncio.gather(*coroutines)

    return wait(together())
