"""Each option of a job reaches the store; one that there is not is refused by its name."""

import json
import sqlite3

import pytest

import gristmill
from gristmill._options import OPTIONS

# A value of each option, and what is stored of it.
STORED = {
    "retries": (4, lambda batch: batch["retry"]["attempts_max"] == 5),
    "retry_delay": ("2s", lambda batch: batch["retry"]["delay_ms"] == 2_000),
    "backoff": ("linear", lambda batch: batch["retry"]["backoff"] == "linear"),
    "timeout": ("7s", lambda batch: batch["timeout_ms"] == 7_000),
    "complete_within": ("1m", lambda batch: batch["complete_within_ms"] == 60_000),
    "priority": (3, lambda batch: batch["priority"] == 3),
    "expires": ("1h", lambda batch: batch["expires_at"] > batch["submitted_at"]),
    "group": ("acme", lambda batch: batch["job_group"] == "acme"),
    "cached": ("1m", lambda batch: batch["cached_ms"] == 60_000),
}


def stored_batches(store):
    """The options of each batch, with its group and the moment of its submit."""
    rows = "SELECT b.id, b.options, b.submitted_at, l.job_group FROM batch b JOIN lane l ON l.id = b.lane_id"
    with sqlite3.connect(store) as connection:
        return {
            str(batch): {**json.loads(options or "{}"), "submitted_at": submitted_at, "job_group": group}
            for batch, options, submitted_at, group in connection.execute(rows)
        }


def test_every_option_of_a_submit_and_of_a_job_is_stored(tmp_path):
    assert sorted(STORED) == sorted(OPTIONS)
    store = tmp_path / "jobs.db"
    app = gristmill.App(store, durable=False)

    @app.job
    def double(number):
        return 2 * number

    batches = {}
    for name, (value, _) in STORED.items():
        submitted = double.submit(1, **{name: value})
        decorated = app.job(name=f"with_{name}", **{name: value})(lambda number: number)
        batches[name] = [job.id.partition(":")[0] for job in (submitted, decorated.submit(1))]
    app.close()
    stored = stored_batches(store)
    for name, (_, is_stored) in STORED.items():
        for batch in batches[name]:
            assert is_stored(stored[batch]), (name, stored[batch])


def test_an_option_that_there_is_not_is_refused_with_the_one_that_was_meant(app):
    @app.job
    def double(number):
        return 2 * number

    with pytest.raises(TypeError, match="did you mean complete_within="):
        double.submit(1, complete_withn="1m")
    with pytest.raises(ValueError, match="complete_within=0"):
        double.submit(1, complete_within=0)
    assert sum(app.counts().values()) == 0
