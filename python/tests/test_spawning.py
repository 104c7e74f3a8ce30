"""Jobs that spawn others, and gather their outcomes."""

import dataclasses

import pytest

import gristmill
from gristmill.testing import submitted


@dataclasses.dataclass
class Page:
    url: str
    depth: int = 0


crawler = gristmill.App("crawler.db", durable=False)


@crawler.job(retries=0, queue="pages")
def count_words(page: Page) -> int:
    assert type(page) is Page
    if page.url == "gone":
        raise ValueError("no such page")
    return len(page.url)


@crawler.job
def add(left: int, right: int) -> int:
    return left + right


@crawler.job(retries=0)
def count_site(urls: list[str]) -> int:
    return gristmill.spawn([Page(url) for url in urls], kind=count_words, memo={"urls": set(urls)}, on_failure="collect")


@count_site.finalize
def sum_words(urls, memo, outcomes):
    print("gathering", len(outcomes))
    assert sorted(memo["urls"]) == sorted(urls)
    return sum(outcome.get("value", 0) for outcome in outcomes)


@crawler.job(retries=0)
def first_failure(urls):
    return gristmill.spawn([Page(url) for url in urls], kind=count_words)


@crawler.job(retries=0)
async def count_both(first: Page, second: Page) -> int:
    return gristmill.spawn(batches=[{"payloads": [first], "kind": count_words}, {"payloads": [(1, 2)], "kind": add, "starmap": True}])


@count_both.finalize
async def sum_both(pages, memo, outcomes):
    assert type(pages["first"]) is Page
    return [outcome["value"] for outcome in outcomes]


@crawler.job
def count_down(number: int) -> int:
    return gristmill.done(number, [number - 1] if number > 1 else [])


@crawler.job(retries=0)
def start(number: int) -> list:
    return gristmill.spawn([number], kind=count_down)


@start.finalize
def gather(number, memo, outcomes):
    return [outcome["value"] for outcome in outcomes]


@crawler.job(retries=0)
def factorial(number):
    """Spawns its own kind, and spawns again when it finalizes."""
    return 1 if number <= 1 else gristmill.spawn([number - 1])


@factorial.finalize
def multiply(number, memo, outcomes):
    return number * outcomes[0]["value"]


@pytest.fixture(params=["stored", "eager"])
def app(request, tmp_path):
    from gristmill.testing import eager, temporary_store

    with (eager if request.param == "eager" else temporary_store)(crawler) as app:
        yield app


def run(app):
    return app.is_eager or app.drain()


def test_the_outcomes_of_children_are_gathered(app):
    handle = count_site.submit(["a", "bb", "gone"])
    run(app)
    assert handle.result() == 3
    assert submitted(count_words) == [{"url": url, "depth": 0} for url in ("a", "bb", "gone")]
    assert app.is_eager or "gathering 3" in handle.log()


def test_a_failed_child_ends_its_parent(app):
    handle = first_failure.submit(["a", "gone"])
    run(app)
    with pytest.raises(gristmill.JobFailed):
        handle.result()


def test_children_are_of_several_kinds_and_finalizers_asynchronous(app):
    handle = count_both.submit(Page("abc"), Page("d"))
    run(app)
    assert handle.result() == [3, 3]


def test_a_child_spawns_siblings(app):
    handle = start.submit(3)
    run(app)
    assert handle.result() == [3, 2, 1]


def test_children_spawn_children(app):
    handle = factorial.submit(4)
    run(app)
    assert handle.result() == 24


def test_children_have_the_queue_and_the_options_of_their_kind(tmp_path):
    from gristmill.testing import temporary_store

    with temporary_store(crawler) as app:
        parent = first_failure.submit(["gone"])
        app.work(1, jobs=[first_failure], until="idle")
        [child] = app.find(parent=parent)
        assert (child.queue, child.kind) == ("pages", "count_words")
        app.drain()
        assert app.details(child.id).row.attempt == 1


def test_a_finalizer_of_a_function_without_a_file_travels(run_python):
    ended = run_python(
        """
        import gristmill
        app = gristmill.App("jobs.db")
        @app.job
        def total(numbers):
            return gristmill.spawn(numbers) if isinstance(numbers, list) else numbers
        @total.finalize
        def add_up(numbers, memo, outcomes):
            return sum(outcome["value"] for outcome in outcomes)
        handle = total.submit([1, 2, 3])
        print(app.drain(), handle.result())
        """,
        as_file=False,
    )
    assert ended.stdout == "4 6\n"


def test_only_a_running_job_spawns():
    with pytest.raises(RuntimeError, match="spawn is for a running job"):
        gristmill.spawn([1])
    with pytest.raises(RuntimeError, match="done is for a running job"):
        gristmill.done(1)
