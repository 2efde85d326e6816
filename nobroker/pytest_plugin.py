"""For tests with pytest of code that enqueues: the fixture ``nobroker_app``.

Nothing of nobroker is imported here, so that sessions whose tests do not ask for it lose no time: the
application that is looked for brings it along.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

_INI = "nobroker_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_INI, "the application that the fixture nobroker_app is about, as package.module:app")


@pytest.fixture
def nobroker_app_target(request: pytest.FixtureRequest) -> Any:
    """The application that `nobroker_app` is about, or its name as ``package.module:app``; override it where
    the ini option does not do.
    """
    return request.config.getini(_INI)


@pytest.fixture
def nobroker_app(nobroker_app_target: Any) -> Iterator[Any]:
    """The application's `AppTesting`, within its block: jobs are held until `drain`, on a queue of their own.

    ``with nobroker_app.inline():`` has them run where they are enqueued.
    """
    app = _named(nobroker_app_target) if isinstance(nobroker_app_target, str) else nobroker_app_target
    if not callable(getattr(app, "testing", None)):
        pytest.fail(f"expected an App of nobroker, not {app!r}{_HOW}", pytrace=False)
    with app.testing() as testing:
        yield testing


_HOW = (
    '; say nobroker_app = "package.module:app" in the configuration of pytest, or override the fixture '
    "nobroker_app_target"
)


def _named(target: str) -> Any:
    if not target:
        pytest.fail(f"the fixture nobroker_app does not know your App{_HOW}", pytrace=False)
    module, _, path = target.partition(":")
    if not path or not all(part.isidentifier() for part in f"{module}.{path}".split(".")):
        pytest.fail(f"{target!r} does not name an App{_HOW}", pytrace=False)
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        if not hasattr(found, name):
            pytest.fail(f"there is no {name!r} in {module}, which {target!r} speaks of", pytrace=False)
        found = getattr(found, name)
    return found
