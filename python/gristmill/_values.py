"""Payloads and values between JSON and Python's types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import sys
import types
import typing
import uuid
from pathlib import PurePath
from typing import Any, Callable

Converter = Callable[[Any], Any]


def to_plain(value: Any) -> Any:
    """What JSON has for an object of another type: dataclasses and pydantic models become dicts, sets and ranges lists, dates
    ISO 8601, decimals text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        # A missing moment of pandas (NaT) is not equal to itself.
        return value.isoformat() if value == value else None
    if isinstance(value, (set, frozenset, range)):
        return [*typing.cast("typing.Iterable[Any]", value)]
    if isinstance(value, (uuid.UUID, PurePath, decimal.Decimal)):
        return str(value)
    if getattr(getattr(value, "dtype", None), "kind", None) == "M":
        # Of a finer unit, numpy would give the nanoseconds since 1970 as a number.
        return typing.cast(Any, value).astype("datetime64[us]").tolist()
    # Scalars and arrays of numpy, pandas and the like.
    tolist = getattr(typing.cast(Any, value), "tolist", None)
    if callable(tolist):
        return tolist()
    kind = typing.cast(Any, type(value))
    if kind.__name__ == "NAType":
        # A missing value of pandas.
        return None
    if kind in (bytes, bytearray, memoryview):
        remedy = "give text, such as base64.b64encode(data).decode(), or the path of a file"
    elif isinstance(value, datetime.timedelta):
        remedy = "give seconds, by its total_seconds()"
    else:
        remedy = (
            "give a dict, list, str, int, float, bool, None, a dataclass or a pydantic model, or convert it first"
        )
    raise TypeError(f"an object of the type {kind.__qualname__} cannot become JSON: {remedy}")


def converter(annotation: Any) -> Converter | None:
    """A function from JSON's types to the annotated type; None where there is nothing to convert."""
    if annotation is None or annotation is Any or annotation is typing.Generic:
        return None
    if isinstance(annotation, typing.TypeVar):
        return None
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return converter(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _of_union(arguments)
    if origin in (list, set, frozenset) or _is_sequence(origin):
        return _of_items(origin if origin in (set, frozenset) else list, arguments)
    if origin is tuple:
        return _of_tuple(arguments)
    if origin is dict:
        inner = converter(arguments[1])
        return None if inner is None else lambda value: {key: inner(item) for key, item in value.items()}
    if not isinstance(annotation, type):
        return None
    if dataclasses.is_dataclass(annotation):
        return _of_dataclass(annotation)
    validate = getattr(annotation, "model_validate", None)  # pyright: ignore[reportUnknownArgumentType]
    if callable(validate):
        return typing.cast(Converter, validate)
    if typing.is_typeddict(annotation):  # pyright: ignore[reportUnknownArgumentType]
        return _of_typed_dict(annotation)
    if issubclass(annotation, enum.Enum):
        return annotation
    if issubclass(annotation, (datetime.datetime, datetime.date, datetime.time)):
        return annotation.fromisoformat
    if annotation in (tuple, set, frozenset, uuid.UUID, decimal.Decimal) or issubclass(annotation, PurePath):
        return annotation
    return None


def _is_sequence(origin: Any) -> bool:
    import collections.abc

    return origin in (collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)


def _of_items(make: Any, arguments: tuple[Any, ...]) -> Converter | None:
    inner = converter(arguments[0])
    if inner is None:
        return None if make is list else make
    return lambda value: make([inner(item) for item in value])


def _of_tuple(arguments: tuple[Any, ...]) -> Converter:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = converter(arguments[0])
        return tuple if inner is None else lambda value: tuple([inner(item) for item in value])
    inners = [converter(argument) for argument in arguments]

    def convert(value: Any) -> Any:
        return tuple([item if inner is None else inner(item) for inner, item in zip(inners, value, strict=True)])

    return convert


def _of_union(arguments: tuple[Any, ...]) -> Converter | None:
    """Of Optional, the one type; of other unions, the first alternative that takes the value."""
    inners = [converter(argument) for argument in arguments if argument is not type(None)]
    if all(inner is None for inner in inners):
        return None

    def convert(value: Any) -> Any:
        if value is None:
            return None
        refused: Exception = TypeError(f"a {type(value).__qualname__} is none of {arguments}")
        for inner in inners:
            if inner is None:
                return value
            try:
                return inner(value)
            except Exception as error:
                refused = error
        raise refused

    return convert


def _hints(annotated: Any) -> dict[str, Any]:
    return typing.get_type_hints(annotated, include_extras=True)


def _converters(hints: dict[str, Any]) -> dict[str, Converter]:
    """The converters of those names whose types need one."""
    converters: dict[str, Converter] = {}
    for name, hint in hints.items():
        convert = converter(hint)
        if convert is not None:
            converters[name] = convert
    return converters


def _of_dataclass(annotation: Any) -> Converter:
    inners: dict[str, Converter] = {}
    # Looked up at the first value: a class may refer to itself.
    hints: dict[str, Any] | None = None

    def convert(value: Any) -> Any:
        nonlocal hints
        if hints is None:
            hints = _hints(annotation)
            inners.update(_converters({field.name: hints.get(field.name) for field in dataclasses.fields(annotation) if field.init}))
        if not isinstance(value, dict):
            raise TypeError(f"{annotation.__qualname__} is made of a JSON object, not of a {type(value).__qualname__}")
        for name, inner in inners.items():
            if name in value:
                value[name] = inner(value[name])
        return annotation(**value)

    return convert


def _of_typed_dict(annotation: Any) -> Converter | None:
    inners = _converters(_hints(annotation))
    if not inners:
        return None

    def convert(value: Any) -> Any:
        return {name: inners[name](item) if name in inners else item for name, item in value.items()}

    return convert


def hints_of(function: Any) -> dict[str, Any]:
    """The annotations of a function, resolved; none where one of them cannot be resolved."""
    try:
        return _hints(function)
    except Exception as error:
        if getattr(function, "__annotations__", None):
            print(f"gristmill: the annotations of {function!r} are not used: {error}", file=sys.stderr)
        return {}
