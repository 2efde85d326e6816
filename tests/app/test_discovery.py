"""Importing the modules that jobs are in."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, DiscoveryError, DuplicateJobError

JOB = "from shop_app import app\n@app.job(name={name!r})\ndef job(): ...\n"


class Tree:
    """Modules on the import path, for the time of a test."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, source: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source, encoding="utf-8")

    def job(self, path: str, name: str) -> None:
        self.write(path, JOB.format(name=name))


@pytest.fixture
def tree(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    import types

    holder: Any = types.ModuleType("shop_app")
    holder.app = app
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "shop_app", holder)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    made = Tree(tmp_path / "modules")
    made.job("shop/__init__.py", "top")
    made.job("shop/mail.py", "mail")
    made.job("shop/deep/__init__.py", "deep")
    made.job("shop/deep/er/jobs.py", "deepest")  # a folder without __init__.py is no package to walk into
    made.job("shop/deep/er2/__init__.py", "deeper")
    made.job("shop/deep/er2/jobs.py", "deepest2")
    made.write("shop/__main__.py", "raise SystemExit('not to be imported')")
    made.write("shop/not-a-module.py", "raise SystemExit('not to be imported')")
    yield made
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_all_that_is_in_a_package_at_any_depth(app: App, tree: Tree) -> None:
    found = app.discover_jobs("shop")
    assert found == ["shop", "shop.deep", "shop.deep.er2", "shop.deep.er2.jobs", "shop.mail"]
    assert sorted(app.jobs) == ["deep", "deeper", "deepest2", "mail", "top"]
    assert app.discover_jobs("shop", "shop.mail") == found, "again does no harm"


def test_only_the_package_itself(app: App, tree: Tree) -> None:
    assert app.discover_jobs("shop", recursive=False) == ["shop"]
    assert app.discover_jobs("shop.deep.er.jobs", "shop.mail") == ["shop.deep.er.jobs", "shop.mail"]
    assert sorted(app.jobs) == ["deep", "deepest", "mail", "top"], (
        "packages above are imported by Python itself"
    )


@pytest.mark.parametrize("source", ["import nothing_of_this_name", "1 / 0", "def", "raise SystemExit(1)"])
def test_a_module_that_cannot_be_imported(
    app: App, tree: Tree, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    tree.write("shop/broken.py", source)
    with pytest.raises(DiscoveryError, match=r"could not import shop\.broken: ") as raised:
        app.discover_jobs("shop")
    assert raised.value.__cause__ is not None
    caplog.set_level(logging.WARNING)
    found = app.discover_jobs("shop", on_error="warn")
    assert "shop.broken" not in found
    assert "shop.mail" in found
    assert "event=discovery.failed module=shop.broken" in caplog.text


def test_a_package_that_is_not_there(app: App) -> None:
    with pytest.raises(DiscoveryError, match="could not import nothing_of_this_name: ModuleNotFoundError"):
        app.discover_jobs("nothing_of_this_name")
    assert app.discover_jobs("nothing_of_this_name", on_error="warn") == []


def test_arguments_that_can_not_be_meant(app: App) -> None:
    with pytest.raises(ValueError, match='on_error must be "raise" or "warn"'):
        app.discover_jobs("shop", on_error="ignore")
    for wrong in ("shop/mail.py", "", ".", "shop.", 5, "shop mail"):
        with pytest.raises(ValueError, match="expected the dotted name of a package"):
            app.discover_jobs(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_two_jobs_of_one_name_name_both_modules(app: App, tree: Tree, on_error: str) -> None:
    tree.job("shop/post.py", "mail")
    with pytest.raises(DuplicateJobError, match=r"'mail': one in shop\.mail \(line 2\), one in shop\.post"):
        app.discover_jobs("shop", on_error=on_error)


def test_a_script_that_is_also_imported_defines_its_jobs_once(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from nobroker import App\n"
        "import holder\n"
        "app = holder.app\n"
        "@app.job\n"
        "def send(x):\n"
        "    print('sent', x, __name__)\n"
        "if __name__ == '__main__':\n"
        "    assert app.discover_jobs('shop', '__main__') == ['shop', '__main__']\n"
        "    send.perform_later(1)\n"
        "    app.run(once=True)\n",
        encoding="utf-8",
    )
    (tmp_path / "holder.py").write_text(
        "from nobroker import App\napp = App('jobs', fsync=False)\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "sent 1 shop\n"


def test_what_is_typed_again_in_an_interactive_session_counts(tmp_path: Path) -> None:
    typed = (
        "from nobroker import App\napp = App('jobs', fsync=False)\n"
        "@app.job\ndef job(): return 'first'\n\n"
        "@app.job\ndef job(): return 'second'\n\n"
        "handle = job.perform_later()\n_ = app.run(once=True)\nprint(handle.result())\n"
    )
    done = subprocess.run(
        [sys.executable, "-i"],
        input=typed,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "second\n", done.stderr
