"""Rows of tables of pandas, polars, pyarrow and others: a dict of columns each. It imports none of these libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

# Rows that are converted at once.
ROWS = 1_000


def rows(items: Iterable[Any]) -> Iterable[Any]:
    """The rows of a table; other iterables are returned unchanged."""
    if callable(getattr(items, "iter_rows", None)):
        # polars: converts a buffer of rows at a time.
        return items.iter_rows(named=True, buffer_size=ROWS)  # type: ignore[attr-defined, no-any-return]
    if callable(getattr(items, "collect", None)) and callable(getattr(items, "lazy", None)):
        raise TypeError(f"a {type(items).__qualname__} has no rows yet: give it as items.collect()")
    if callable(getattr(items, "to_pylist", None)) and callable(getattr(items, "slice", None)):
        return _of_arrow(items)
    if callable(getattr(items, "read_next_batch", None)):
        # A reader of pyarrow's gives one record batch after the other.
        return (row for batch in items for row in _of_arrow(batch))
    if hasattr(items, "iloc") and callable(getattr(items, "notna", None)):
        return _of_pandas(items) if hasattr(items, "columns") else _of_series(items)
    if callable(getattr(items, "__dataframe__", None)):
        return _of_interchange(items)
    return items


def is_table(items: Any) -> bool:
    """Reports whether `rows` returns the rows of this iterable as dicts."""
    if hasattr(items, "iloc"):
        return hasattr(items, "columns")
    return any(hasattr(items, name) for name in ("iter_rows", "column_names", "read_next_batch", "__dataframe__"))


def count(items: Any) -> int | None:
    """The number of items, if it is known before they are read."""
    try:
        return len(items)
    except (TypeError, NotImplementedError):
        return None


def _check_columns(names: list[str]) -> None:
    """Refuses columns with the same name, because a dict would only keep the last one."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two columns are named {twice!r}: rename one of them")


def _of_arrow(table: Any) -> Iterator[Any]:
    schema = getattr(table, "schema", None)
    if schema is not None:
        _check_columns(list(schema.names))
    for first in range(0, len(table), ROWS):
        yield from table.slice(first, ROWS).to_pylist()


def _of_pandas(table: Any) -> Iterator[dict[str, Any]]:
    names = [str(name) for name in table.columns]
    _check_columns(names)
    for first in range(0, len(table), ROWS):
        part = table.iloc[first : first + ROWS]
        # What is missing (NaN, NaT, NA) is None; the others are Python's own numbers, texts and dates.
        present = part.notna().to_numpy()
        values = part.astype(object).to_numpy()
        for at, row in enumerate(values):
            yield {name: value if present[at][column] else None for column, (name, value) in enumerate(zip(names, row))}


def _of_series(series: Any) -> Iterator[Any]:
    for first in range(0, len(series), ROWS):
        part = series.iloc[first : first + ROWS]
        present = part.notna().to_numpy()
        yield from (value if there else None for value, there in zip(part.astype(object).to_numpy(), present))


def _of_interchange(table: Any) -> Iterator[Any]:
    try:
        from pyarrow.interchange import from_dataframe  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise TypeError(
            f"a {type(table).__qualname__} gives its rows by the dataframe interchange protocol, which pyarrow reads:"
            " install pyarrow, or give an iterable of dicts"
        ) from None
    for chunk in table.__dataframe__().get_chunks():
        yield from _of_arrow(from_dataframe(chunk))
