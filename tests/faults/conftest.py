"""The fixtures of the harness; the command that replays a failure; the figures of long runs."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.faults import figures
from tests.faults.trial import Options, Trial

HERE = Path(__file__).parent
_REPORTS: pytest.StashKey[dict[str, pytest.CollectReport | pytest.TestReport]] = pytest.StashKey()
_TRIAL: pytest.StashKey[Trial] = pytest.StashKey()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, so that they do not keep one process busy when the others have finished."""
    items.sort(key=lambda item: HERE not in item.path.parents)


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Iterator[Trial]:
    """How many rounds, which random numbers, what was seen."""
    config = request.config
    options = Options(config.getoption("seed"), config.getoption("only"), config.getoption("long_minutes"))
    name = f"{request.path.stem.removeprefix('test_')}: {request.node.name.removeprefix('test_')}"
    begun = Trial(name, request.node.nodeid, options)
    if begun.long:
        begun.begin = figures.begin_of(name, options.seed)
    request.node.stash[_TRIAL] = begun
    yield begun
    report = request.node.stash[_REPORTS].get("call")
    if begun.long and options.only is None and report is not None and not report.skipped:
        figures.add(begun, "passed" if report.passed else "failed")


@pytest.fixture
def quick_directory() -> Iterator[Path]:
    """A directory in memory, where there is such a place: for tests that play the disk themselves."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="nobroker-faults-", dir=where))
    gc.collect()
    gc.freeze()  # what is there now need not be looked at again and again
    yield path
    gc.unfreeze()
    shutil.rmtree(path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash.setdefault(_REPORTS, {})[report.when] = report
    trial = item.stash.get(_TRIAL, None)
    if report.failed and trial is not None:
        report.sections.append(("to replay", trial.replay()))
    return report
