"""The progress of a map: tqdm's bar if it is installed, otherwise a line."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator
from typing import Any, Protocol, TextIO

# How often a line is written to a terminal, and to anything else. Seconds.
TERMINAL_S, FILE_S = 0.2, 10.0


class Bar(Protocol):
    """The interface of tqdm's bars."""

    def update(self, n: float = ...) -> object: ...


def shown(values: Iterator[Any], progress: Any, name: str, total: int | None) -> Generator[Any, None, None]:
    """The values, with a bar that counts them. `progress` is True, or a bar, which stays open."""
    own: Any = None
    if progress is True:
        own = _tqdm(name, total) or Line(name, total)
        bar: Bar = own
    else:
        bar = progress
    try:
        for value in values:
            bar.update(1)
            yield value
    finally:
        close = getattr(values, "close", None)
        if close is not None:
            close()
        if own is not None:
            own.close()


def _tqdm(name: str, total: int | None) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=name)


class Line:
    """A line on standard error: the number of items, the total, and the rate."""

    def __init__(self, name: str, total: int | None, file: TextIO | None = None) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self._file = sys.stderr if file is None else file
        self._is_terminal = self._file.isatty()
        self._began = self._written = time.monotonic()

    def update(self, n: float = 1) -> None:
        """Counts items, and writes the line if it is due."""
        self.done += int(n)
        now = time.monotonic()
        if now - self._written >= (TERMINAL_S if self._is_terminal else FILE_S):
            self._written = now
            self._write("\r" if self._is_terminal else "", "" if self._is_terminal else "\n")

    def close(self) -> None:
        """Writes the last line."""
        self._write("\r" if self._is_terminal else "", "\n")

    def text(self, seconds: float) -> str:
        """The line after this many seconds."""
        rate = f"{self.done / seconds:,.0f}/s" if seconds > 0 else "?/s"
        if not self.total:
            return f"{self.name}: {self.done:,} ({rate})"
        return f"{self.name}: {self.done:,} of {self.total:,}, {100 * self.done // self.total} % ({rate})"

    def _write(self, before: str, after: str) -> None:
        # A standard error that is closed must not end the map.
        try:
            self._file.write(f"{before}{self.text(time.monotonic() - self._began)}{after}")
            self._file.flush()
        except (OSError, ValueError):
            pass
