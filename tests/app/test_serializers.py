"""Arguments and results come back equal and of the same types; what would not is refused where it is given."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nobroker import App, Discard, JobState, SerializationError, UnknownJobError
from nobroker.app.errors import UnknownSerializerError
from nobroker.app.people import serializer_for
from nobroker.app.serializers import MAX_DEPTH, Serializers
from nobroker.clock import ManualClock
from nobroker.values import pack_value
from tests.app.working import work

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


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types at every depth."""
    if type(one) is not type(other) or one != other:
        return one is other
    if isinstance(one, dict):
        return all(
            type(a) is type(b) and same(one[a], other[b])
            for a, b in zip(sorted(one, key=repr), sorted(other, key=repr), strict=True)
        )
    if isinstance(one, (list, tuple)):
        return all(map(same, one, other))
    if isinstance(one, (set, frozenset)):
        return all(map(same, sorted(one, key=repr), sorted(other, key=repr)))
    return True


LEAVES = [
    None, True, 0, 2**70, -1.5, "text", "2026-01-01T00:00:00", "", b"\x00\xff", datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1), date(2026, 1, 1), time(1, 2), timedelta(days=-1, microseconds=1), Decimal("1.10"),  # noqa: DTZ001
    UUID(int=5), (), (1, (2,)), {1, "a"}, frozenset({(1, 2)}), [], {}, {"$": 1}, {"$": ["tuple", [1]]},
    {"$": {"$": 1}}, {"$": 1, "x": 2}, {1: "a", None: "b", 1.5: "c", b"x": "d", True: "e"}, {"args": [], "job": "x"},
]  # fmt: skip


def test_types_are_kept_at_every_depth(app: App, note: Any) -> None:
    shapes = [lambda x: x, lambda x: [x], lambda x: {"a": x}, lambda x: ({"a": [{"b": (x,)}]},)]
    values = [shape(leaf) for leaf in LEAVES for shape in shapes]
    assert same(through(app, note, *values), values)


def test_keyword_arguments_are_kept_too(app: App, note: Any) -> None:
    note.perform_later(a=(1,), **{"$": {2}})
    work(app)
    assert same(seen, [(1,), {2}])


hashables = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
values = st.recursive(
    hashables | st.sets(hashables, max_size=3) | st.just({}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["$", "a", "map", "tuple"]) | st.integers(), inner, max_size=3)
        | inner.map(lambda value: {"$": value})
        | inner.map(lambda value: {"$": ["set", value]})
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(values)
def test_whatever_is_packed_comes_back_the_same(value: Any) -> None:
    serializers = Serializers()
    packed = serializers.pack(value, "value")
    pack_value(packed)  # the queue stores it
    assert same(serializers.unpack(packed), value)


def test_what_is_not_stored_is_refused_with_its_place_and_what_to_do(app: App, note: Any) -> None:
    class Thing:
        pass

    class Text(str):
        pass

    class Number(enum.IntEnum):
        ONE = 1

    Point = namedtuple("Point", "x y")
    wrong: list[tuple[Any, str]] = [
        (Thing(), r"argument 0 of note is of type .*Thing, which is not stored; pass a plain value such as an id, "
                  r"or register it: app.serializer\(Thing\)"),
        ([1, {"a": Thing()}], r"argument 0 of note\[1\]\['a'\] is of type"),
        ((1, {Thing}), r"argument 0 of note\[1\]\[0\] is of type builtins.type"),
        (Text("x"), r"Text, which is not stored, although str is: only the exact type is"),
        (Number.ONE, r"although int is"),
        (Point(1, 2), r"although tuple is"),
        (OrderedDict(a=1), r"although dict is"),
        (Path("x"), r"is of type pathlib"),
        ({(1, 2): "x"}, r"argument 0 of note has the key \(1, 2\) of type tuple; keys of dicts may be str, int.*"
                        r"Pass a list of pairs instead"),
        ([{"a": {Text("k"): 1}}], r"argument 0 of note\[0\]\['a'\] has the key 'k' of type .*Text"),
        (threading.Lock(), r"argument 0 of note is of type _thread.lock"),
    ]  # fmt: skip
    for value, words in wrong:
        with pytest.raises(SerializationError, match=words):
            note.perform_later(value)
    with pytest.raises(SerializationError, match="argument 'user' of note is of type"):
        note.perform_later(1, user=Thing())
    with pytest.raises(SerializationError, match="argument 1 of note"):
        app.perform_all_later([note.build(1), note.build(1, Thing())])
    assert app.queue.stats().total == 0


def nested(depth: int, kind: type = list) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind is dict else kind([value])
    return value


def test_arguments_that_refer_to_themselves_or_nest_too_deeply_are_refused(app: App, note: Any) -> None:
    in_list: list[Any] = []
    in_list.extend([in_list, in_list])
    in_dict: dict[str, Any] = {}
    in_dict["a"] = (in_dict,)
    for value in (in_list, in_dict, nested(MAX_DEPTH + 1), nested(10_000), nested(10_000, dict)):
        with pytest.raises(SerializationError, match=f"refers to itself, or nests deeper than {MAX_DEPTH}"):
            note.perform_later(value)
    assert app.queue.stats().total == 0


@pytest.mark.parametrize(("kind", "depth"), [(list, MAX_DEPTH), (dict, MAX_DEPTH), (tuple, MAX_DEPTH // 2)])
def test_what_is_accepted_can_be_read_from_any_depth_of_stack(
    app: App, note: Any, kind: type, depth: int
) -> None:
    value = nested(depth, kind)

    def deeper(frames: int) -> Any:
        return note.perform_later(value) if frames == 0 else deeper(frames - 1)

    deeper(0)
    deeper(400)
    work(app)
    assert same(seen, [value, value])


# -- people's own types


def test_encode_and_decode(app: App, note: Any) -> None:
    class Point:
        def __init__(self, x: int, y: int) -> None:
            self.at = (x, y)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Point) and self.at == other.at

        __hash__ = None  # type: ignore[assignment]

    app.serializer(Point, encode=lambda point: point.at, decode=lambda at: Point(*at), name="point")
    assert through(app, note, Point(1, 2), [{"a": Point(3, 4)}]) == [Point(1, 2), [{"a": Point(3, 4)}]]
    payload = note.perform_later(Point(1, 2)).job().payload
    assert payload["args"] == [{"$": ["point", {"$": ["tuple", [1, 2]]}]}]

    class Below(Point):
        pass

    with pytest.raises(SerializationError, match=r"although .*Point is: only the exact type is"):
        note.perform_later(Below(1, 2))


def test_a_serializer_that_raises_names_the_argument(app: App, note: Any) -> None:
    class Thing:
        pass

    def broken(value: Any) -> Any:
        raise OSError("no disk")

    app.serializer(Thing, encode=broken, decode=broken, name="thing")
    with pytest.raises(SerializationError, match="argument 0 of note: the serializer 'thing' raised OSError: no disk"):
        note.perform_later(Thing())
    app.serializer(complex, encode=lambda value: [value.real, object()], decode=complex)
    with pytest.raises(SerializationError, match=r"argument 0 of note\[1\] is of type builtins.object"):
        note.perform_later(1j)


def test_what_a_serializer_raises_in_the_worker_is_the_jobs_failure_and_rules_decide(app: App) -> None:
    class Row:
        pass

    class Gone(Exception):
        pass

    def load(key: int) -> Any:
        raise Gone(f"row {key}")

    app.serializer(Row, encode=lambda row: 7, decode=load)

    @app.job(name="rule", discard=[Discard(Gone)])
    def rule(row: Row) -> None:
        seen.append("ran")

    @app.job(name="plain", max_attempts=1)
    def plain(*, row: Row) -> None:
        seen.append("ran")

    plain.after_dead(lambda job, error: seen.append(("dead", str(error), job.arguments.args)))
    handles = [rule.perform_later(Row()), plain.perform_later(row=Row())]
    stats = work(app)
    assert (stats.succeeded, stats.dead) == (1, 1)
    assert handles[0].discarded == "Gone: row 7"
    assert "while restoring argument 'row' of plain" in str(handles[1].job().last_error)
    assert seen == [("dead", "row 7", ())]


def test_a_serializer_that_is_missing_here_is_like_a_class_that_is(app: App, note: Any, clock: ManualClock) -> None:
    app.serializer(complex, encode=lambda value: [value.real, value.imag], decode=lambda pair: complex(*pair), name="c")
    handle = note.perform_later(1j)
    known = app._serializers._by_name.pop("c")
    work(app)
    assert (handle.status(), handle.job().attempts) == (JobState.READY, 0)
    app._serializers._by_name["c"] = known
    clock.advance(15)
    work(app)
    assert seen == [1j]
    del app._serializers._by_name["c"]
    with pytest.raises(UnknownSerializerError, match="the serializer 'c', which this process has not registered"):
        handle.result()
    other = note.perform_later(2j)
    work(app)
    clock.advance(3600)
    work(app)
    assert UnknownJobError.__name__ in str(other.job().last_error)
    assert "serializer 'c'" in str(other.job().last_error)


def test_serializers_that_can_not_be_meant_are_refused(app: App) -> None:
    class Thing:
        pass

    class Other:
        pass

    for kind in (int, dict, list, datetime):
        with pytest.raises(ValueError, match="is stored by the queue itself"):
            app.serializer(kind, encode=str, decode=str)
    with pytest.raises(ValueError, match="has a serializer already: 'tuple'"):
        app.serializer(tuple, encode=list, decode=tuple)
    with pytest.raises(TypeError, match="takes a type"):
        app.serializer(Thing())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="say how it travels"):
        app.serializer(Thing)
    for half in ({"encode": str}, {"decode": str}):
        with pytest.raises(TypeError, match="needs both encode and decode"):
            app.serializer(Thing, **half)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="encode must be a function"):
        app.serializer(Thing, encode=3, decode=str)  # type: ignore[arg-type]
    for name in ("", 3):
        with pytest.raises(TypeError, match="name must be a str"):
            app.serializer(Thing, encode=str, decode=str, name=name)  # type: ignore[arg-type]
    for name in ("map", "discarded", "set"):
        with pytest.raises(ValueError, match="a serializer of the name"):
            app.serializer(Thing, encode=str, decode=str, name=name)
    app.serializer(Thing, encode=str, decode=str, name="thing")
    with pytest.raises(ValueError, match="has a serializer already: 'thing'"):
        app.serializer(Thing, encode=str, decode=str)
    with pytest.raises(ValueError, match="a serializer of the name 'thing'"):
        app.serializer(Other, encode=str, decode=str, name="thing")


# -- enums


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1
    BLUE = (2, 3)


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


def test_enums_travel_by_name_and_flags_by_value(app: App, note: Any) -> None:
    for kind in (Color, Level, Rights):
        app.serializer(kind)
    values = [Color.RED, Color.CRIMSON, [Color.BLUE], Level.LOW, Rights.READ, Rights.READ | Rights.WRITE, Rights(0)]
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
    user = User(name="Ann", address=Address("Main St", ("a", "b")), color=Color.BLUE, born=date(2000, 1, 1), notes=[{1}])
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
    with pytest.raises(SerializationError, match="User has no field 'email' here: it was stored by another version"):
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
        tags: set[str] = set()

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
    with pytest.raises(SerializationError, match=r"ContentType is not saved, so that no worker could load it"):
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
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
