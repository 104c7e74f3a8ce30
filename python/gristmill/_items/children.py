"""The children that a job spawns, as a worker's process passes them on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .._job import Job
from .._options import check_names
from .._values import to_plain
from .portions import encoded
from .shape import encoded_items
from .tables import rows


def children_of(children: Iterable[Any], named: Mapping[str, Any], batches: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Batches of children: payloads of JSON types, and the names of the kinds."""
    return [_batch({**named, "payloads": children}), *map(_batch, batches)]


def _batch(given: Mapping[str, Any]) -> dict[str, Any]:
    check_names("a batch of children", given, ("payloads", "kind", "queue", "tags", "options", "starmap"))
    batch = dict(given)
    payloads: Iterable[Any] = batch["payloads"]
    kind = batch.get("kind")
    starmap = bool(batch.pop("starmap", False))
    if starmap and not isinstance(kind, Job):
        raise TypeError("starmap=True needs kind=, the job whose parameters the items of a tuple are")
    if isinstance(kind, Job):
        options = {name: value for name, value in kind.options.items() if name != "expires_ms"}
        batch.update(
            kind=kind.name, queue=batch.get("queue") or kind.queue, options={**options, **(batch.get("options") or {})}
        )
        encode = kind.shape.encoder(payloads, starmap)
        payloads = rows(payloads)
        if encode is not None:
            payloads = encoded_items(payloads, encode)
    batch["payloads"] = plain(list(payloads))
    return batch


def plain(value: Any) -> Any:
    """A value as it is read back from its JSON."""
    return json.loads(encoded(value, to_plain))
