"""The same for asyncio."""

import asyncio
import time


async def main(seconds):
    await asyncio.sleep(seconds)
    return time.time_ns()
