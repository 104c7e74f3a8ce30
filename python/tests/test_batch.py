"""Batch handlers."""

import asyncio

import pytest
import shop

import gristmill


@pytest.fixture
def jobs(app):
    shop.define(app)
    return app.jobs


def test_a_batch_holds_up_to_its_size(app, jobs):
    submitted = jobs["count_batch"].submit_many(range(20))
    app.drain()
    sizes = submitted.results()
    # Of 20, with batches of 8: no size is above 8, and each size stands in as many results as it counts.
    assert max(sizes) == 8
    assert all(sizes.count(size) % size == 0 for size in set(sizes))


def test_the_culprit_of_a_failing_batch_fails_alone(app, jobs):
    submitted = jobs["inverse"].submit_many([1, 2, 0, 4, 5, 0, 8])
    app.drain()
    for handle, expected in zip(submitted, [1, 0.5, None, 0.25, 0.2, None, 0.125]):
        if expected is None:
            with pytest.raises(gristmill.JobFailed, match="ZeroDivisionError"):
                handle.result()
        else:
            assert handle.result() == expected


def test_a_class_is_set_up_once_and_keys_part_batches(app, jobs):
    submitted = jobs["Embed"].submit_many(["a", "bb", "c", "dd", "eee"] * 4)
    app.drain()
    results = submitted.results()
    assert [length for _, length in results] == [1, 2, 1, 2, 3] * 4
    assert len({process for process, _ in results}) == 1


def test_out_of_memory_halves_batches_from_then_on(app, jobs):
    submitted = jobs["Limited"].submit_many(range(32))
    app.drain()
    assert set(submitted.results()) <= {1, 2}


def test_a_batch_that_was_too_large_is_not_tried_again():
    from gristmill._batch import Batcher

    sizes = []

    def handler(items):
        sizes.append(len(items))
        if len(items) > 3:
            raise MemoryError("too many")
        return items

    async def run():
        batcher = Batcher(handler, 32, 60, None)
        assert await asyncio.gather(*map(batcher.main, range(32))) == list(range(32))
        assert await asyncio.gather(*map(batcher.main, range(2))) == [0, 1]

    asyncio.run(run())
    assert sizes == [32, 16, 8, 4] + [2] * 17


def test_a_wrong_number_of_results_is_an_error_of_all(app, jobs):
    submitted = jobs["forget_one"].submit_many(range(3))
    app.drain()
    for handle in submitted:
        with pytest.raises(gristmill.JobFailed, match="returned . results for . payloads"):
            handle.result()


def test_a_batch_handler_maps_and_runs_here(app, jobs):
    assert list(jobs["inverse"].map([1, 2, 4])) == [1, 0.5, 0.25]
    assert jobs["inverse"]([2]) == [0.5]
    assert shop.Embed(["a"])[0][1] == 1


def test_an_asynchronous_handler_and_exceptions_among_its_results():
    from gristmill._batch import Batcher

    async def handler(items):
        await asyncio.sleep(0)
        return [ValueError(item) if item == "bad" else item for item in items]

    async def run():
        batcher = Batcher(handler, 3, 60, None)
        return await asyncio.gather(*[batcher.main(item) for item in ["a", "bad", "c"]], return_exceptions=True)

    first, bad, last = asyncio.run(run())
    assert (first, last) == ("a", "c") and isinstance(bad, ValueError)
