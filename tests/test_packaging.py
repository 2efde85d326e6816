"""What is installed is what was meant: names, dependencies, entry points, files, and what an import loads."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.imports import CORE_DEPENDENCIES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"nobroker": "nobroker", "nobroker_mmap": "nobroker_mmap", "tools": "nobroker_tools"}
# The C parts of dependencies come with modules of their compiler's; locking on Windows goes through pywin32.
THEIR_PARTS = re.compile(r"_?cython_.*|pywintypes|pythoncom|win32\w*|_win32\w*|pywin32\w*")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def name_of(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0]


def test_dependencies_are_the_core_and_the_two_of_the_command_line(project: dict[str, Any]) -> None:
    assert {name_of(r) for r in project["dependencies"]} == CORE_DEPENDENCIES | {"click", "rich"}
    assert set(project["optional-dependencies"]) == {
        "test", "faults", "dev", "examples", "fast", "schedules", "structlog", "titles", "yaml",
    }  # fmt: skip
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "MIT"


def test_the_installed_metadata_agrees_with_the_sources(project: dict[str, Any]) -> None:
    try:
        installed = metadata.distribution("nobroker")
    except metadata.PackageNotFoundError:
        pytest.skip("the project is not installed here; `python make.py test` installs it")
    import nobroker

    assert installed.version == nobroker.__version__
    required = {name_of(r) for r in installed.requires or () if "extra ==" not in r}
    assert required == {name_of(r) for r in project["dependencies"]}
    scripts = {e.name: e.value for e in installed.entry_points if e.group == "console_scripts"}
    assert scripts == project["scripts"]


@pytest.mark.parametrize("script", ["nobroker", "nobroker-dump"])
def test_a_console_script_names_a_function(script: str, project: dict[str, Any]) -> None:
    module, _, function = project["scripts"][script].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_tools_answer_to_their_installed_name_and_to_no_other() -> None:
    tools = importlib.import_module("nobroker_tools")
    dump = importlib.import_module("nobroker_tools.dump")
    assert tools.__name__ == "nobroker_tools"
    assert Path(tools.__file__ or "").parent == Path(dump.__file__ or "").parent
    assert "tools" not in sys.modules


# Modules of the standard library that take milliseconds to import, and that the queue needs later or never.
HEAVY = {
    "asyncio", "concurrent", "dataclasses", "decimal", "email", "inspect", "ipaddress", "json", "logging",
    "multiprocessing", "pathlib", "random", "shutil", "socket", "subprocess", "tempfile", "urllib", "uuid",
    "zoneinfo",
}  # fmt: skip


def modules_loaded_by(statement: str) -> set[str]:
    after = "print(*set(sys.modules) - before)"
    code = f"import sys; before = set(sys.modules); {statement}; {after}"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return {name.partition(".")[0] for name in result.stdout.split()}


def foreign(modules: set[str]) -> set[str]:
    return {m for m in modules if m not in sys.stdlib_module_names and not THEIR_PARTS.fullmatch(m)}


def test_importing_nobroker_loads_the_declared_core_and_nothing_else() -> None:
    loaded = foreign(modules_loaded_by("import nobroker"))
    assert "nobroker" in loaded
    assert loaded <= CORE_DEPENDENCIES | {"nobroker", "nobroker_mmap"}


def test_importing_nobroker_loads_neither_worker_nor_jobs() -> None:
    code = "import nobroker, sys; print(*(name for name in sys.modules if name.startswith('nobroker.')))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "nobroker.queue" in loaded.stdout.split()
    above = ("nobroker.app", "nobroker.running", "nobroker.worker", "nobroker.cli")
    assert not [n for n in loaded.stdout.split() if n.startswith(above)]


def test_the_job_layer_loads_nothing_of_others() -> None:
    loaded = foreign(
        modules_loaded_by("from nobroker import App; App('nowhere').discover_jobs('nobroker.app')")
    )
    assert loaded <= CORE_DEPENDENCIES | {"nobroker", "nobroker_mmap"}


def test_every_name_of_the_job_layer_can_be_had() -> None:
    import nobroker

    assert [name for name in nobroker.__all__ if getattr(nobroker, name, None) is None] == []
    assert nobroker.App.__module__.startswith("nobroker.app")


@pytest.mark.parametrize("package", ["nobroker", "nobroker_mmap.log"])
def test_an_import_loads_nothing_heavy(package: str) -> None:
    assert not modules_loaded_by(f"import {package}") & HEAVY


def test_the_job_layer_loads_what_recurring_tasks_need_when_they_do() -> None:
    assert not modules_loaded_by("import nobroker.app") & {"cronsim", "yaml", "zoneinfo"}


def test_a_heavy_import_would_be_seen() -> None:
    assert {"dataclasses", "inspect"} <= modules_loaded_by("import dataclasses") & HEAVY


def test_importing_the_log_loads_no_queue() -> None:
    loaded = foreign(modules_loaded_by("import nobroker_mmap"))
    assert "nobroker_mmap" in loaded
    assert loaded <= CORE_DEPENDENCIES | {"nobroker_mmap"}


def test_a_stray_import_would_be_seen() -> None:
    assert "click" in foreign(modules_loaded_by("import click"))


@pytest.mark.parametrize("folder", PACKAGES)
def test_types_are_published(folder: str) -> None:
    assert (ROOT / folder / "py.typed").is_file()


def sources(folder: str) -> set[str]:
    files = (p.relative_to(ROOT) for p in (ROOT / folder).rglob("*") if p.is_file())
    return {f.as_posix() for f in files if not any(part.startswith((".", "__pycache__")) for part in f.parts)}


def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path: Path) -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling comes with the extra dev")
    built = next(wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
    info = {n for n in names if ".dist-info/" in n}
    assert {n.rpartition("/")[2] for n in info} == {
        "METADATA",
        "WHEEL",
        "RECORD",
        "entry_points.txt",
        "LICENSE",
    }
    expected = {
        name + file.removeprefix(folder) for folder, name in PACKAGES.items() for file in sources(folder)
    }
    assert names - info == expected


def test_the_source_distribution_holds_all_that_is_needed_to_build_and_test(tmp_path: Path) -> None:
    sdist = pytest.importorskip("hatchling.builders.sdist", reason="hatchling comes with the extra dev")
    built = next(sdist.SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    alone = {"pyproject.toml", "make.py", "nobroker_tools.py", "LICENSE", ".ci/run"}
    written = {"README.md", "ARCHITECTURE.md", "CHANGELOG.md"}
    folders = [*PACKAGES, "tests", "docs", "benchmarks", "examples"]
    assert alone | written | {file for folder in folders for file in sources(folder)} <= names
