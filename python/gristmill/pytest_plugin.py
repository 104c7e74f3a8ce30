"""The fixture `gristmill_app`: an application on an empty store of its own.

With `gristmill_app = "shop:app"` in pytest's configuration it is that application, and without a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ._app import App


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("gristmill_app", "the application of the fixture gristmill_app, as MODULE:APP", default="")


@pytest.fixture
def gristmill_app(pytestconfig: pytest.Config) -> Iterator[App]:
    """An application on an empty store of its own. `gristmill_app.drain()` runs what was submitted."""
    from .__main__ import find_application
    from ._app import App
    from .testing import temporary_store

    place = pytestconfig.getini("gristmill_app")
    with temporary_store(find_application(place) if place else App()) as app:
        yield app
