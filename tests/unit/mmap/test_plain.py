"""Plain values: dataclasses to whoever looks."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from nobroker import BackoffPolicy, CompactionResult, Job, JobState, QueueStats, RecoveryReport

JOB = Job("a", {"mail": "ann"}, 3, available_at=1.5)
VALUES = [
    JOB,
    BackoffPolicy(factor=3.0),
    QueueStats(ready=2),
    CompactionResult(4, 3, 2, 1),
    RecoveryReport(7),
]
FROZEN = [value for value in VALUES if not isinstance(value, (Job, RecoveryReport))]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
class TestEveryValue:
    def test_is_a_dataclass(self, value: object) -> None:
        assert dataclasses.is_dataclass(value)
        assert dataclasses.is_dataclass(type(value))
        names = [field.name for field in dataclasses.fields(value)]
        assert names == list(type(value).__match_args__)
        assert dataclasses.asdict(value) == {name: getattr(value, name) for name in names}
        assert dataclasses.astuple(value) == tuple(getattr(value, name) for name in names)

    def test_is_equal_to_its_copies_only(self, value: object) -> None:
        (name, *_) = type(value).__match_args__
        for twin in (dataclasses.replace(value), copy.copy(value), copy.deepcopy(value)):
            assert twin == value
            assert twin is not value
        other = dataclasses.replace(value, **{name: 99})
        assert getattr(other, name) == 99
        assert other != value
        assert value != dataclasses.astuple(value)

    def test_survives_a_pickle(self, value: object) -> None:
        assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own

    def test_shows_itself_as_a_dataclass_would(self, value: object) -> None:
        twin = dataclasses.make_dataclass(type(value).__name__, [f.name for f in dataclasses.fields(value)])
        assert repr(value) == repr(twin(*dataclasses.astuple(value)))

    def test_refuses_what_it_has_not(self, value: object) -> None:
        with pytest.raises(TypeError):
            dataclasses.replace(value, nothing=1)
        with pytest.raises(TypeError):
            type(value)(*range(50))


@pytest.mark.parametrize("value", FROZEN, ids=lambda value: type(value).__name__)
def test_frozen_values_do_not_change_and_have_a_hash(value: object) -> None:
    (name, *_) = type(value).__match_args__
    with pytest.raises(dataclasses.FrozenInstanceError, match=name):
        setattr(value, name, 1)
    with pytest.raises(dataclasses.FrozenInstanceError, match=name):
        delattr(value, name)
    assert len({value, dataclasses.replace(value), dataclasses.replace(value, **{name: 1.25})}) == 2


def test_jobs_change_and_have_no_hash() -> None:
    job = JOB.snapshot()
    job.state = JobState.DONE
    assert JOB.state is JobState.READY
    with pytest.raises(TypeError, match="unhashable"):
        hash(job)
    with pytest.raises(AttributeError):
        job.stat = "done"  # type: ignore[attr-defined]


def test_fields_know_types_and_defaults() -> None:
    fields = {field.name: field for field in dataclasses.fields(Job)}
    assert fields["max_attempts"].default == 5
    assert fields["max_attempts"].type == "int"
    assert fields["payload"].default is dataclasses.MISSING


def test_a_dataclass_may_be_made_of_one() -> None:
    @dataclasses.dataclass
    class Tagged(Job):
        tag: str = "none"

    @dataclasses.dataclass(frozen=True)
    class Named(BackoffPolicy):
        name: str = "none"

    assert dataclasses.asdict(Tagged("a", 1, tag="x"))["tag"] == "x"
    assert [field.name for field in dataclasses.fields(Tagged)] == [*Job.__match_args__, "tag"]
    assert Named(name="slow").delay_for(1, None) > 0
    with pytest.raises(TypeError, match="frozen"):

        @dataclasses.dataclass
        class Loose(BackoffPolicy):
            pass


def test_a_subclass_without_fields_of_its_own_has_those_of_its_parent() -> None:
    class Mine(Job):
        pass

    assert Mine("a", 1) != Job("a", 1)
    assert dataclasses.replace(Mine("a", 1), payload=2) == Mine("a", 2)


def test_values_match_by_place() -> None:
    match CompactionResult(4, 3, 2, 1):
        case CompactionResult(before, after):
            assert (before, after) == (4, 3)
