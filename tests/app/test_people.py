"""Types that people bring: enums, dataclasses, Pydantic and Django models."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, Discard, JobState, SerializationError
from nobroker.app.people import serializer_for
from tests.app.working import same, work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@pytest.fixture
def note(app: App) -> Any:
    @app.job(name="note", max_attempts=1)
    def note(*args: Any, **kwargs: Any) -> Any:
        seen.extend([*args, *kwargs.values()])
        return args

    return note


def through(app: App, note: Any, *values: Any) -> list[Any]:
    """The values as the job got them, after a look at those that it returned."""
    handle = note.perform_later(*values)
    seen.clear()
    work(app)
    assert handle.status() == JobState.DONE, handle.job().last_error
    assert same(handle.result(), values)
    return list(seen)


# -- enums


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - an alias
    BLUE = (2, 3)


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


def test_enums_travel_by_name_and_flags_by_value(app: App, note: Any) -> None:
    for kind in (Color, Level, Rights):
        app.serializer(kind)
    values = [
        Color.RED,
        Color.CRIMSON,
        [Color.BLUE],
        Level.LOW,
        Rights.READ,
        Rights.READ | Rights.WRITE,
        Rights(0),
    ]
    assert same(through(app, note, *values), values)
    payload = note.perform_later(Color.CRIMSON, Rights.WRITE).job().payload
    assert payload["args"] == [{"$": [f"{__name__}.Color", "RED"]}, {"$": [f"{__name__}.Rights", 2]}]


def test_a_member_that_is_gone_is_named() -> None:
    decode = serializer_for(Color, None, None, None).decode
    with pytest.raises(SerializationError, match="Color has no member 'GREEN' here"):
        decode("GREEN")


# -- dataclasses


@dataclasses.dataclass
class Address:
    street: str
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    address: Address
    color: Color = Color.RED
    born: date | None = None
    length: int = dataclasses.field(init=False, default=0)
    notes: list[Any] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.name))


def test_dataclasses_travel_by_the_names_of_their_fields(app: App, note: Any) -> None:
    for kind in (User, Address, Color):
        app.serializer(kind)
    user = User(
        name="Ann",
        address=Address("Main St", ("a", "b")),
        color=Color.BLUE,
        born=date(2000, 1, 1),
        notes=[{1}],
    )
    [got] = through(app, note, user)
    assert same(got, user)
    assert same(got.address.tags, ("a", "b"))
    assert got.length == 3
    plain = note.perform_later(Address("x")).job().payload["args"]
    assert plain == [{"$": [f"{__name__}.Address", {"street": "x", "tags": {"$": ["tuple", []]}}]}]


def test_a_dataclass_in_a_dataclass_is_registered_too(app: App, note: Any) -> None:
    app.serializer(User)
    with pytest.raises(SerializationError, match=r"argument 0 of note\['address'\] is of type .*Address"):
        note.perform_later(User(name="Ann", address=Address("x")))


def test_fields_that_came_or_went_between_versions() -> None:
    decode = serializer_for(User, None, None, None).decode
    user = decode({"name": "Ann", "address": None})
    assert (user.color, user.notes, user.length) == (Color.RED, [], 3), "missing ones take their defaults"
    with pytest.raises(
        SerializationError, match="User has no field 'email' here: it was stored by another version"
    ):
        decode({"name": "Ann", "address": None, "email": "x"})
    with pytest.raises(SerializationError, match="User needs a value for 'address'"):
        decode({"name": "Ann"})
    with pytest.raises(SerializationError, match="expected the fields of a User"):
        decode([1])


def test_a_dataclass_that_needs_more_than_its_fields_is_refused(app: App) -> None:
    @dataclasses.dataclass
    class Loaded:
        x: int
        source: dataclasses.InitVar[str]

    with pytest.raises(TypeError, match="needs source to be made"):
        app.serializer(Loaded)


# -- Pydantic and Django


def test_pydantic_models(app: App, note: Any) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Line(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        price: Decimal
        tags: set[str] = set()  # noqa: RUF012 - copied for each

    class Order(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        number: int = pydantic.Field(alias="no")
        at: datetime
        lines: list[Line]
        pair: tuple[int, str] = (1, "a")

        @pydantic.computed_field  # type: ignore[prop-decorator,untyped-decorator]
        @property
        def total(self) -> Decimal:
            return sum((line.price for line in self.lines), Decimal(0))

    app.serializer(Order)
    order = Order(no=5, at=datetime(2026, 1, 1, tzinfo=UTC), lines=[Line(price=Decimal("1.10"), tags={"x"})])
    [got] = through(app, note, order)
    assert same(got, order)
    assert (got.total, got.lines[0].tags, got.pair) == (Decimal("1.10"), {"x"}, (1, "a"))

    class Special(Order):
        pass

    with pytest.raises(SerializationError, match="only the exact type"):
        note.perform_later(Special(no=5, at=order.at, lines=[]))


def test_a_pydantic_model_that_would_come_back_otherwise_is_refused(app: App, note: Any) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Secret(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        name: str
        password: str = pydantic.Field(default="", exclude=True)

    app.serializer(Secret)
    assert through(app, note, Secret(name="a")) == [Secret(name="a")]
    with pytest.raises(SerializationError, match="would not come back as it is"):
        note.perform_later(Secret(name="a", password="x"))


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Any]:
    """A model of Django's own, with an empty table of its own."""
    django = pytest.importorskip("django")
    from django.conf import settings as its

    if not its.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}
        its.configure(DATABASES={"default": database}, INSTALLED_APPS=["django.contrib.contenttypes"])
        django.setup()
    from django.apps import apps
    from django.db import connection

    found = apps.get_model("contenttypes", "ContentType")
    with connection.schema_editor() as editor:
        editor.create_model(found)
    yield found
    connection.close()


def test_django_models_travel_as_their_keys_and_are_loaded_again(app: App, model: Any) -> None:
    from django.db import connection

    app.serializer(model)

    @app.job(name="greet", discard=[Discard(model.DoesNotExist)])
    def greet(row: Any) -> str:
        seen.append((type(row), row.pk))
        return str(row.model)

    app.on_worker_stop(connection.close)
    greet.after_perform(lambda job: connection.close())
    greet.after_discard(lambda job, error: connection.close())
    row = model.objects.create(app_label="shop", model="before")
    handle = greet.perform_later(row)
    name = f"{model.__module__}.ContentType"
    assert handle.job().payload["args"] == [{"$": [name, ["contenttypes.ContentType", row.pk]]}]
    row.model = "as it is when the job runs"
    row.save()
    work(app)
    assert seen == [(model, row.pk)]
    assert handle.result() == "as it is when the job runs"
    with pytest.raises(
        SerializationError, match=r"ContentType is not saved, so that no worker could load it"
    ):
        greet.perform_later(model(model="new"))
    gone = greet.perform_later(row)
    row.delete()
    work(app)
    assert "DoesNotExist" in str(gone.discarded)


def test_pydantic_and_django_are_recognised_without_being_imported(app: App) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom nobroker import App\napp = App('unused')\n"
        "app.serializer(complex, encode=str, decode=complex)\n"
        "try:\n    app.serializer(type('Thing', (), {}))\nexcept TypeError:\n    pass\n"
        "assert not {'pydantic', 'django'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
