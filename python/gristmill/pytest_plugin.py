"""Fixtures for tests of applications.

* `gristmill_app`: an application on an empty store of its own. With `gristmill_app = "shop:app"` in pytest's configuration
  it is that application, and without a new one.
* `gristmill_clock`: the clock of that store, which the test moves.
* `gristmill_eager`: the same application, whose jobs run when they are submitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ._app import App
    from .testing import Clock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("gristmill_app", "the application of the fixture gristmill_app, as MODULE:APP", default="")


@pytest.fixture
def gristmill_clock() -> Clock:
    """The clock of `gristmill_app`'s store: `gristmill_clock.advance("1h")`."""
    from .testing import Clock

    return Clock()


@pytest.fixture
def gristmill_app(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[App]:
    """An application on an empty store of its own. `gristmill_app.drain()` runs the submitted jobs."""
    from .__main__ import find_application
    from ._app import App
    from .testing import temporary_store

    place = pytestconfig.getini("gristmill_app")
    clock = request.getfixturevalue("gristmill_clock") if "gristmill_clock" in request.fixturenames else None
    with temporary_store(find_application(place) if place else App(), clock) as app:
        yield app


@pytest.fixture
def gristmill_eager(gristmill_app: App) -> Iterator[App]:
    """The application of `gristmill_app`, whose jobs run when they are submitted."""
    from .testing import eager

    with eager(gristmill_app) as app:
        yield app
