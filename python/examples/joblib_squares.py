"""The parts of a joblib call as jobs, in warm processes: `python joblib_squares.py`."""

from typing import Any

import joblib  # pyright: ignore[reportMissingTypeStubs]

import gristmill
from gristmill.integrations.joblib import register


def square(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number


def main(store: str = "jobs.db") -> list[int]:
    """The squares of some numbers."""
    app = gristmill.App(store)
    register(app)
    # joblib has no types.
    library: Any = joblib
    with library.parallel_config("gristmill", n_jobs=2):
        squares: list[int] = library.Parallel()(library.delayed(square)(number) for number in range(100))
    app.close()
    return squares


if __name__ == "__main__":
    print(sum(main()))
