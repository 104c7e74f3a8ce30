"""A `submit_many` that fails on its way says what is stored."""

import re

import pytest

import gristmill

# Of such items, a portion of 4 MiB has some 80.
LARGE = "x" * 50_000


@pytest.fixture
def job(app):
    @app.job
    def length(text):
        return len(text)

    return length


def stored(app):
    return sum(app.counts().values())


def reopen(app):
    app._engine = None


def test_a_store_that_goes_away_leaves_the_first_items_and_the_exception_has_them(app, job):
    def items():
        for number in range(1_000):
            if number == 500:
                app.engine().close()
            yield f"{number} {LARGE}"

    with pytest.raises(gristmill.SubmitFailed, match="the store is closed; the first [0-9]+ items are stored, as jobs 1:0 to ") as raised:
        job.submit_many(items())
    submitted = raised.value.submitted
    reopen(app)
    assert 0 < len(submitted) <= 500 and stored(app) == len(submitted)
    # They are the first ones, in their order.
    for place in (0, len(submitted) - 1):
        assert submitted[place].details().payload.startswith(f"{place} ")
    assert isinstance(raised.value, gristmill.StoreError)


def test_where_nothing_is_stored_the_exception_says_no_more(app, job):
    app.engine().close()
    with pytest.raises(gristmill.SubmitFailed, match="^the store is closed$") as raised:
        job.submit_many(["a"])
    assert len(raised.value.submitted) == 0
    reopen(app)
    assert stored(app) == 0


@pytest.mark.parametrize("fault", ["raised", "unpackable"])
def test_items_that_fail_tell_what_is_stored_before_them(app, job, fault):
    def items():
        for number in range(400):
            yield f"{number} {LARGE}"
        if fault == "raised":
            raise FileNotFoundError("page 7")
        yield object()

    error, match = (FileNotFoundError, "page 7") if fault == "raised" else (TypeError, "item 400")
    with pytest.raises(error, match=match) as raised:
        job.submit_many(items())
    submitted = raised.value.submitted
    assert 0 < len(submitted) < 400 and stored(app) == len(submitted)
    notes = getattr(raised.value, "__notes__", None)
    if notes is not None:
        assert re.search(rf"the first {len(submitted)} items are stored, as jobs 1:0 to {submitted[-1].id}", notes[0])
