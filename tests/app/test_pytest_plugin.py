"""The fixture ``nobroker_app``, in sessions of their own."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent.parent

APP = """
from nobroker import App

app = App("real-queue")
did = []

@app.job(queue="mails")
def send(to):
    did.append(to)
    if to == "nobody":
        raise ValueError("nobody to greet")
"""
WITH_APP = ["-o", "nobroker_app=shop:app"]


@pytest.fixture(autouse=True)
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory with an application; sessions in it load the plugin, and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(shop=APP)
    return pytester


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    """A process of its own: the application is imported anew, and what was imported before does not count."""
    pytester.makepyfile(test_shop=tests)
    paths = os.pathsep.join([str(pytester.path), str(ROOT)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", paths)
        return pytester.runpytest_subprocess(
            "-p", "nobroker.pytest_plugin", "-p", "no:cacheprovider", "-W", "error", *options
        )


def test_the_entry_point_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"nobroker": "nobroker.pytest_plugin"}


def test_jobs_are_held_and_worked_off_in_each_test_anew(pytester: pytest.Pytester) -> None:
    tests = """
        import pytest
        from shop import did, send

        def test_held(nobroker_app):
            send.perform_later("ann")
            nobroker_app.assert_enqueued(send, args=("ann",), queue="mails", times=1)
            assert did == []
            nobroker_app.drain()
            assert did == ["ann"]

        def test_inline(nobroker_app):
            nobroker_app.assert_nothing_enqueued()
            with nobroker_app.inline():
                send.perform_later("bob")
                assert did[-1] == "bob"
                with pytest.raises(ValueError, match="nobody to greet"):
                    send.perform_later("nobody")
            send.perform_later("eve")
            assert did[-1] == "nobody"
            assert [job.args for job in nobroker_app.jobs] == [("eve",)]

        def test_without():
            pass
        """
    run(pytester, tests, *WITH_APP).assert_outcomes(passed=3)
    assert not (pytester.path / "real-queue").exists()


def test_the_target_may_be_a_fixture_of_ones_own(pytester: pytest.Pytester) -> None:
    tests = """
        import pytest
        from shop import app, did, send

        @pytest.fixture(params=["object", "name"])
        def nobroker_app_target(request):
            return app if request.param == "object" else "shop:app"

        def test_it(nobroker_app):
            assert nobroker_app.app is app
            send.perform_later("ann")
            assert nobroker_app.drain().succeeded == 1
        """
    run(pytester, tests).assert_outcomes(passed=2)


def test_a_failed_assertion_points_to_the_test_and_says_what_there_was(pytester: pytest.Pytester) -> None:
    tests = """
        from shop import send

        def test_it(nobroker_app):
            send.perform_later("ann")
            nobroker_app.assert_enqueued(send, args=("bob",))
        """
    result = run(pytester, tests, *WITH_APP)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>*nobroker_app.assert_enqueued(send, args=("bob",))',
            "E*AssertionError: expected to be enqueued and was not: send, args=('bob',)",
            "E*these were enqueued:",
            "E*send('ann') on 'mails'",
            "test_shop.py:5: AssertionError",
        ]
    )


def test_a_wrong_target_is_an_error_that_says_what_to_do(pytester: pytest.Pytester) -> None:
    tests = """
        import pytest

        @pytest.fixture(params=["", "shop", "shop:ap", "shop:did", "shopp:app"])
        def nobroker_app_target(request):
            return request.param

        def test_it(nobroker_app):
            pass
        """
    result = run(pytester, tests)
    result.assert_outcomes(errors=5)
    how = "; say nobroker_app = *"
    result.stdout.fnmatch_lines(
        [
            f"the fixture nobroker_app does not know your App{how}",
            f"'shop' does not name an App{how}",
            "there is no 'ap' in shop, which 'shop:ap' speaks of",
            f"expected an App of nobroker, not [[]]{how}",
            "*ModuleNotFoundError: No module named 'shopp'",
        ]
    )


def test_a_session_that_does_not_ask_for_it_loads_nothing_of_the_job_layer(pytester: pytest.Pytester) -> None:
    tests = """
        import sys

        def test_it():
            assert "nobroker.pytest_plugin" in sys.modules
            assert not [name for name in sys.modules if name.startswith("nobroker.app")]
        """
    run(pytester, tests, *WITH_APP).assert_outcomes(passed=1)
