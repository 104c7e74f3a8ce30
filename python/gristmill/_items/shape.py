"""Turns items into arguments, and arguments into payloads."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from .._values import Converter, converter, hints_of
from .tables import is_table

# Stands for an item whose place among the parameters is looked up.
_ITEM: Any = object()

Encoder = Callable[[Any], Any]


class Shape:
    """The parameters of a function. One parameter takes the payload itself, several are the members of an object, and none
    leaves `null`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            signature = inspect.signature(function)
        except ValueError:
            # Some built-in functions have none: they take the payload.
            signature = inspect.Signature([inspect.Parameter("payload", inspect.Parameter.POSITIONAL_ONLY)])
        if isinstance(function, functools.partial):
            # What it binds by name is no parameter any more.
            bound = function.keywords
            parameters = [parameter for name, parameter in signature.parameters.items() if name not in bound]
            signature = signature.replace(parameters=parameters)
        self.signature = signature
        self.names = list(signature.parameters)
        kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
        # The names of *args and **kwargs.
        self.rest = kinds.get(inspect.Parameter.VAR_POSITIONAL)
        self.named_rest = kinds.get(inspect.Parameter.VAR_KEYWORD)
        self.is_single = len(self.names) == 1 and self.rest is None and self.named_rest is None
        self.is_called_by_name = self.rest is None and inspect.Parameter.POSITIONAL_ONLY not in kinds
        self.is_keyword_only = self.is_single and inspect.Parameter.KEYWORD_ONLY in kinds
        hints = hints_of(function)
        self.converters: dict[str, Converter] = {}
        for name in self.names:
            convert = converter(hints.get(name))
            if convert is not None:
                self.converters[name] = convert
        self.result: Converter | None = converter(hints.get("return"))

    # --- payloads ---

    def payload(self, arguments: tuple[Any, ...], named: Mapping[str, Any] | None = None) -> Any:
        """The payload of a call."""
        if self.is_single and len(arguments) == 1 and not named and not self.is_keyword_only:
            return arguments[0]
        try:
            bound = self.signature.bind(*arguments, **(named or {}))
        except TypeError as error:
            shown = ", ".join([*map(reprlib.repr, arguments), *(f"{name}={reprlib.repr(value)}" for name, value in (named or {}).items())])
            raise TypeError(f"the arguments ({shown}) do not fit the parameters {self.signature}: {error}") from None
        if self.is_single:
            bound.apply_defaults()
            return bound.arguments[self.names[0]]
        members = dict(bound.arguments)
        further: dict[str, Any] = members.pop(self.named_rest, {}) if self.named_rest else {}
        twice = sorted(set(further) & set(self.names))
        if twice:
            raise TypeError(f"the argument {twice[0]}= has the name of another parameter of {self.signature}: rename one of them")
        return {**members, **further} if self.names else None

    def encoder(self, items: Iterable[Any], starmap: bool) -> Encoder | None:
        """The function from one of these items to a payload; None where the items are payloads as they are.

        An item is one argument. With `starmap`, it is a tuple, list or dict of arguments. The rows of a table are arguments by
        name where the columns are parameters.
        """
        if starmap:
            return self._payload_of_arguments
        if self.is_single and not self.is_keyword_only:
            return None
        if not is_table(items):
            return self._one_argument()
        chosen: list[Encoder] = []

        def of_row(row: Any) -> Any:
            # All rows have the same columns.
            if not chosen:
                chosen.append((lambda row: self.payload((), row)) if self._has_columns(row) else self._one_argument(row))
            return chosen[0](row)

        return of_row

    def _has_columns(self, row: Any) -> bool:
        try:
            self.signature.bind(**row)
        except TypeError:
            return False
        return True

    def _one_argument(self, row: Any = None) -> Encoder:
        try:
            [name] = self.signature.bind(_ITEM).arguments
        except TypeError:
            if isinstance(row, dict):
                columns = ", ".join(map(str, cast("dict[str, Any]", row)))
                raise TypeError(f"the columns ({columns}) are not the parameters {self.signature}: select and rename columns") from None
            raise TypeError(
                f"an item is one argument, and the parameters are {self.signature}: give starmap=True for items that are tuples or"
                " dicts of arguments, or map(function, firsts, seconds) for an iterable of each parameter"
            ) from None
        if name == self.rest:
            return lambda item: {name: [item]}
        return lambda item: {name: item}

    def _payload_of_arguments(self, item: Any) -> Any:
        if isinstance(item, Mapping):
            return self.payload((), cast("Mapping[str, Any]", item))
        if isinstance(item, (tuple, list)):
            return self.payload(tuple(cast("Iterable[Any]", item)))
        raise TypeError(f"with starmap=True, an item is a tuple, list or dict of arguments, and not {reprlib.repr(item)}")

    # --- arguments ---

    def arguments_of(self, payload: Any) -> Any:
        """A payload in the form of the parameters: the argument, or a dict of several."""
        if self.is_single:
            convert = self.converters.get(self.names[0])
            return payload if convert is None else convert(payload)
        if not self.names:
            return payload
        if not isinstance(payload, dict):
            found = reprlib.repr(payload)
            raise TypeError(f"the payload is {found}: a function of the parameters {self.signature} takes an object of them")
        members = cast("dict[str, Any]", payload)
        return {name: self._converted(name, value) for name, value in members.items()}

    def _converted(self, name: str, value: Any) -> Any:
        if name not in self.names and self.named_rest is not None:
            name = self.named_rest
        convert = self.converters.get(name)
        if convert is None:
            return value
        return [convert(item) for item in value] if name == self.rest else convert(value)

    def calling(self, function: Callable[..., Any]) -> Callable[[Any], Any]:
        """The function of one payload."""
        if self.is_single and not self.is_keyword_only:
            convert = self.converters.get(self.names[0])
            if convert is None:
                return function
            return _composed(function, lambda payload: ((convert(payload),), {}))
        if not self.names:
            return _composed(function, lambda payload: ((), {}))
        if self.is_single:
            return _composed(function, lambda payload: ((), {self.names[0]: self.arguments_of(payload)}))
        if self.is_called_by_name:
            return _composed(function, lambda payload: ((), self.arguments_of(payload)))
        return _composed(function, self.bound)

    def bound(self, payload: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a function whose parameters have no names for callers."""
        members = self.arguments_of(payload)
        bound = inspect.BoundArguments(self.signature, cast(Any, {name: members[name] for name in self.names if name in members}))
        return bound.args, {**bound.kwargs, **{name: value for name, value in members.items() if name not in self.names}}


def encoded_items(items: Iterable[Any], encode: Encoder, first: int = 0) -> Iterable[Any]:
    """The payloads of items. An error names its item by its number."""
    for number, item in enumerate(items, first):
        try:
            payload = encode(item)
        except TypeError as error:
            raise TypeError(f"item {number}: {error}") from None
        yield payload


def _composed(
    function: Callable[..., Any], arguments: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]
) -> Callable[[Any], Any]:
    if inspect.iscoroutinefunction(function):

        async def call_async(payload: Any) -> Any:
            positional, named = arguments(payload)
            return await function(*positional, **named)

        return call_async

    def call(payload: Any) -> Any:
        positional, named = arguments(payload)
        return function(*positional, **named)

    return call
