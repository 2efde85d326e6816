"""Values <-> bytes: what a payload may be, and how it is packed.

The rule is one of *exact* types, so that what is leased equals what was enqueued, at every depth:
None, bool, int of any size, float, str (lone surrogates too), bytes, list, tuple (comes back as a list),
dict with str, int, float, bool, bytes or None keys, datetime, date, time, timedelta, Decimal, UUID.
Sub-classes and everything else are refused with the place where they stand.

Speed comes from letting C do the walking: the packer with `strict_types`, and `_plain`, which looks at the
types level by level. Only what neither takes as it is (dates, tuples, big numbers, mistakes) is walked in
Python.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import Any, Final

import msgpack

from nobroker.errors import SerializationError

MAX_VALUE_BYTES: Final = 8 * 2**20
"""The packed size of one payload, metadata, result or state."""

MAX_DEPTH: Final = 500
"""How deep lists and dicts may nest. Below what any version of msgpack packs (511) and unpacks, the record's
own list included.
"""

BATCH_JOBS: Final = 1000
BATCH_BYTES: Final = 2**20

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_KEYS: Final = _SCALARS

_PLAIN: Final = _SCALARS | {list, tuple, dict}
_ONLY_DICTS: Final = frozenset({dict})
_TEXT: Final = frozenset({str})


class _Codec(threading.local):
    """One packer per thread, and whether its hook was called: packers are not shared between threads."""

    def __init__(self) -> None:
        self.hooked = False
        self.packer = msgpack.Packer(default=self._hook, strict_types=True)
        self.lenient = msgpack.Packer(default=self._hook, strict_types=True, unicode_errors="surrogatepass")
        self.plain = msgpack.Packer(strict_types=True, unicode_errors="surrogatepass")

    def _hook(self, value: Any) -> Any:
        self.hooked = True
        from nobroker.extensions import to_extension  # here, to keep `import nobroker` light

        return to_extension(value)

    def pack(self, value: Any) -> bytes:
        self.hooked = False
        packed: bytes
        try:
            packed = self.packer.pack(value)
        except UnicodeEncodeError:
            packed = self.lenient.pack(value)
        return packed


_codec = _Codec()


def pack_value(value: Any, what: str = "payload") -> bytes:
    """Pack one value.

    Args:
        value: see the rule above.
        what: how to call it in an error.

    Raises:
        SerializationError: it is not of the allowed types, too deep, or over 8 MiB.
    """
    return pack_list([value], [what])[1:]


def pack_list(values: list[Any], names: list[str] | None = None) -> bytes:
    """Pack values into one array.

    `names` are what errors call them; without, `payload` for a single one and `payloads[i]` else.
    """
    try:
        packed = _codec.pack(values)
    except Exception as error:  # the packer's own, and whatever a foreign tzinfo raises
        _refuse(values, names)
        raise SerializationError(f"{_name(values, names, 0)} cannot be stored: {error}") from error
    if _codec.hooked or not _plain(values):
        _refuse(values, names)
    if len(packed) > MAX_VALUE_BYTES:
        _refuse_large(values, names)
    return packed


def pack_batches(
    payloads: Iterable[Any], form: str = "payloads[{}]", start: int = 0
) -> list[tuple[int, bytes]]:
    """Pack any iterable into arrays of at most 1,000 values and about 1 MiB: `(count, packed)` each.

    Raises:
        SerializationError: names the first value that is refused by `form`; they are numbered from `start`.
    """
    batches: list[tuple[int, bytes]] = []
    source = iter(payloads)
    while chunk := list(islice(source, BATCH_JOBS)):
        names = _Numbered(form, start)
        batches.extend(_split(chunk, names))
        start += len(chunk)
    return batches


def _split(chunk: list[Any], names: _Numbered) -> Iterator[tuple[int, bytes]]:
    try:
        packed = pack_list(chunk, names)
    except MemoryError:
        packed = b""
    if packed and (len(packed) <= BATCH_BYTES or len(chunk) == 1):
        yield len(chunk), packed
        return
    half = len(chunk) // 2
    yield from _split(chunk[:half], names)
    yield from _split(chunk[half:], names.after(half))


class _Numbered(list[str]):
    """Names such as `payloads[i]`, made only when an error asks."""

    def __init__(self, form: str, start: int) -> None:
        super().__init__()
        self._form = form
        self._start = start

    def __getitem__(self, index: Any) -> Any:
        return self._form.format(self._start + index)

    def after(self, count: int) -> _Numbered:
        return _Numbered(self._form, self._start + count)


def unpack(packed: bytes | memoryview) -> Any:
    """The value again.

    Raises:
        ValueError: the bytes are not what `pack_value` or `pack_list` makes (in every such case).
    """
    try:
        return msgpack.unpackb(
            packed, ext_hook=_from_extension, strict_map_key=False, unicode_errors="surrogatepass"
        )
    except (
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
        ArithmeticError,
        msgpack.UnpackException,
    ) as error:
        raise ValueError(f"not a stored value: {error}") from error


def _from_extension(code: int, data: bytes) -> Any:
    from nobroker.extensions import from_extension

    return from_extension(code, data)


def pack_plain(value: Any) -> bytes:
    """Pack a record's head or what else the library itself made: no extension types. `Record.head` reads it.

    Raises:
        TypeError, OverflowError: that was something else.
    """
    packed: bytes = _codec.plain.pack(value)
    return packed


def split_array(packed: bytes) -> list[bytes]:
    """The packed elements of a packed array, without decoding them.

    Raises:
        ValueError: the bytes are not an array.
    """
    unpacker = msgpack.Unpacker(
        strict_map_key=False, unicode_errors="surrogatepass", max_buffer_size=len(packed) + 1
    )
    unpacker.feed(packed)
    try:
        count = unpacker.read_array_header()
        ends = [unpacker.tell()]
        for _ in range(count):
            unpacker.skip()
            ends.append(unpacker.tell())
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"not a packed array: {error}") from error
    return [packed[a:b] for a, b in pairwise(ends)]


def join_array(elements: list[bytes]) -> bytes:
    """The reverse of `split_array`."""
    header: bytes = msgpack.Packer().pack_array_header(len(elements))
    return header + b"".join(elements)


def storable_text(error: object, limit: int = 65536) -> str:
    """Any error text made storable: surrogates and NULs escaped, at most `limit` bytes, the end kept.

    Never raises: a `__str__` that does is data, too.
    """
    try:
        text = error if type(error) is str else str(error)
    except (
        Exception
    ) as failure:  # whatever a foreign __str__ raises must not keep a job from failing properly
        text = f"<{type(error).__name__} whose text raised {type(failure).__name__}>"
    raw = text[-limit:].encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00")
    if len(raw) > limit:
        raw = raw[-limit:]
    return raw.decode("utf-8", "ignore")


def _flat(value: dict[Any, Any]) -> bool:
    """A dict of scalars, as most payloads are."""
    for key, item in value.items():  # noqa: SIM110 - a generator costs twice as much
        if type(item) not in _SCALARS or type(key) not in _KEYS:
            return False
    return True


def _plain(level: list[Any]) -> bool:
    """Whether all is of the plain types and not too deep: level by level, so that C does the walking.

    For what the packer took without its hook: no text here is of a sub-class, so no other type of key can
    hide behind one that is equal to it where all keys are text.
    """
    if len(level) == 1 and type(level[0]) is dict and _flat(level[0]):
        return True
    for _ in range(MAX_DEPTH + 1):
        kinds = set(map(type, level))
        if kinds <= _SCALARS:
            return True
        if not kinds <= _PLAIN:
            return False
        dicts = level if kinds == _ONLY_DICTS else [value for value in level if type(value) is dict]
        keys: set[Any] = set().union(*dicts)
        if not set(map(type, keys)) <= _TEXT and not set(map(type, chain.from_iterable(dicts))) <= _KEYS:
            return False
        inner: list[Any] = list(chain.from_iterable(map(dict.values, dicts)))
        if list in kinds or tuple in kinds:
            lists = [value for value in level if type(value) is list or type(value) is tuple]
            inner.extend(chain.from_iterable(lists))
        level = inner
    return False


def _refuse(values: list[Any], names: list[str] | None) -> None:
    """Raise for the first thing among the values that the rule refuses; return if there is none."""
    from nobroker.refusals import first_fault

    for index, value in enumerate(values):
        found = first_fault(value, MAX_DEPTH)
        if found is not None:
            path, why = found
            raise SerializationError(f"{_name(values, names, index)}{path} {why}")


def _refuse_large(values: list[Any], names: list[str] | None) -> None:
    for index, value in enumerate(values):
        size = len(_codec.pack(value))
        if size > MAX_VALUE_BYTES:
            raise SerializationError(
                f"{_name(values, names, index)} takes {size:,} bytes packed; at most {MAX_VALUE_BYTES:,} are "
                "stored. Store it elsewhere and enqueue its name"
            )


def _name(values: list[Any], names: list[str] | None, index: int) -> str:
    if names is not None:
        return names[index]
    return "payload" if len(values) == 1 else f"payloads[{index}]"
