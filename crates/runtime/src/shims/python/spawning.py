# What a job says when it spawns others.

# What describes children.
CHILDREN_NAMES = ("payloads", "kind", "queue", "tags", "options")


class Spawn:
    """What a job spawns; made by gristmill.spawn."""

    def __init__(self, body):
        self.body = body


class Spawned(dict):
    """The note that says so."""


class Suspension:
    """What an instance of a flow spawns and keeps where it waits, as JSON; made by gristmill's flows."""

    __slots__ = ("text",)

    def __init__(self, text):
        self.text = text


class SuspensionNote(bytes):
    """The JSON of what it spawns."""

    def note(self, number, duration_us):
        return b'{"spawned":{"index":%d,"duration_us":%d,"spawn":%s}}\n' % (number, duration_us, self)


class Done:
    """A value with siblings; made by gristmill.done."""

    def __init__(self, value, siblings):
        self.value = value
        self.siblings = siblings


class DoneNote(dict):
    """The note that says so."""


def pack(children, batches, named):
    """Batches of children as the protocol has them."""
    every = [dict(named, payloads=list(children))] + [dict(batch) for batch in batches]
    packed = []
    for batch in every:
        for name in batch:
            if name not in CHILDREN_NAMES:
                near = [known for known in CHILDREN_NAMES if known[:3] == name[:3]]
                meant = "did you mean %r? " % near[0] if near else ""
                raise TypeError("a batch of children has no %r: %sIt has %s" % (name, meant, ", ".join(CHILDREN_NAMES)))
        payloads = list(batch.get("payloads", ()))
        if payloads:
            packed.append(dict({name: value for name, value in batch.items() if value is not None}, payloads=payloads))
    return packed


def spawn(children=(), memo=None, kind=None, queue=None, tags=None, options=None, batches=(), on_failure="fail"):
    """Returned by main (or finalize): the job waits for these children, and then `finalize(payload, memo, outcomes)` is
    called. `children` are payloads, of the job's own kind where none is named; `batches` are more of them, each a dict with
    `payloads` and perhaps `kind`, `queue`, `tags` and `options`. `on_failure` is "fail" (the first child that fails ends the
    job) or "collect" (finalize gets all outcomes)."""
    named = {"kind": kind, "queue": queue, "tags": tags, "options": options}
    return Spawn({"children": pack(children, batches, named), "memo": [memo], "on_failure": on_failure})


def done(value=None, siblings=(), kind=None, queue=None, tags=None, options=None, batches=()):
    """Returned by main (or finalize) of a child: it completes with the value, and its parent waits for these siblings, too.
    `siblings` and `batches` are as the children of `spawn`."""
    named = {"kind": kind, "queue": queue, "tags": tags, "options": options}
    return Done(value, pack(siblings, batches, named))


class ChildFailed(Exception):
    """A child did not complete, and the script has no finalize to decide what that means."""

    permanent = True


