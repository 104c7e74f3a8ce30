"""Fetches pages and returns their titles: an asynchronous `main`, which runs several items at the same time.

    gristmill run examples/fetch_titles.py --input urls.txt --format lines --output titles.jsonl \
        -j 2 --timeout 30s --retries 4 --backoff jitter

Each process runs up to 32 items at the same time, so -j 2 has up to 64 concurrent requests. The output
is the item's log: `gristmill show 1:7` shows it beside the attempts and errors.
"""
import asyncio
import html
import re
import urllib.error
import urllib.request

TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
PAGE_BYTES_MAX = 1 << 20


class Busy(Exception):
    """The server is busy: the next attempt begins after `retry_after` seconds."""

    def __init__(self, seconds):
        super().__init__(f"the server is busy; it asks to wait {seconds} s")
        self.retry_after = seconds


def fetch(url):
    request = urllib.request.Request(url, headers={"User-Agent": "gristmill-example"})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, response.read(PAGE_BYTES_MAX)
    except urllib.error.HTTPError as error:
        if error.code in (429, 503):
            wait = error.headers.get("Retry-After", "5")
            raise Busy(float(wait) if wait.isdigit() else 5.0) from None
        # A retry does not help against a missing page.
        error.permanent = 400 <= error.code < 500
        raise


async def main(url):
    status, page = await asyncio.to_thread(fetch, url.strip())
    found = TITLE.search(page)
    print(f"{len(page)} bytes, status {status}")
    title = html.unescape(found.group(1).decode("utf-8", "replace")).strip() if found else None
    return {"url": url, "title": title}
