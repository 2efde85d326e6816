"""What the queue does while its disk is being recorded: little, but of everything."""

from __future__ import annotations

import contextlib

import pytest

from nobroker import Queue, StorageError
from tests.faults.book import Book, let_go
from tests.faults.disk import Killed


def _pad(book: Book, size: int = 1500) -> dict[str, str]:
    return {"pad": book.rng.randbytes(size // 2).hex()}


def verbs(book: Book) -> None:
    """Every verb, one process, durable; some rotations."""
    queue = book.open()
    do = book.do
    for turn in range(7):
        do(queue, lambda turn=turn: queue.enqueue({"turn": turn, **_pad(book)}, priority=turn % 3))
        do(queue, lambda: queue.enqueue_many([_pad(book, 900) for _ in range(5)], lane="many"))
        do(queue, lambda turn=turn: queue.enqueue("own", job_id=f"own-{turn % 4}", metadata={"m": turn}))
        held = do(queue, lambda: queue.lease(5), durable=False)
        if turn % 3 == 0:
            do(queue, lambda held=held: queue.extend(held[0], 60, progress=1, state="s"), durable=False)
        result = "r" if turn % 2 else None
        do(queue, lambda held=held, result=result: queue.ack(held[0], result=result))
        do(queue, lambda held=held: queue.nack(held[1], error="again", delay=1))
        do(queue, lambda held=held: queue.release(held[2]), durable=False)
        do(queue, lambda held=held: queue.ack_many(held[3:]))
        many = do(queue, lambda: queue.lease(9, lanes=["many"]), durable=False)
        do(queue, lambda many=many: queue.ack_many(many))
        book.clock.advance(2)
    do(queue, lambda: queue.enqueue_many([None] * 3, lane="many"))
    _managing(book, queue)
    queue.close()


def _managing(book: Book, queue: Queue) -> None:
    do = book.do
    held = do(queue, lambda: queue.lease(3), durable=False)
    do(queue, lambda: queue.nack_many(held[:2], error="no use", dead=True))
    do(queue, lambda: queue.cancel(held[2].id))
    waiting = queue.list_jobs("ready", limit=1)[0]
    do(queue, lambda: queue.cancel(waiting.id))
    hastened = queue.list_jobs("ready", limit=1)[0]
    do(queue, lambda: queue.reschedule(hastened.id, delay=3))
    do(queue, lambda: queue.requeue_dead(held[0].id))
    do(queue, lambda: queue.drop_dead())
    do(queue, lambda: queue.pause())
    do(queue, lambda: queue.resume())
    do(queue, lambda: queue.purge(lane="many"))


def compaction(book: Book) -> None:
    """Segments fill, are compacted, and leave; what lives moves."""
    do = book.do
    for _ in range(2):
        queue = book.open()
        do(queue, lambda queue=queue: queue.enqueue_many([_pad(book) for _ in range(4)], lane="stays"))
        for turn in range(5):
            key = f"own-{len(book.steps)}"
            do(queue, lambda queue=queue, key=key: queue.enqueue(_pad(book), job_id=key, priority=2))
            do(queue, lambda queue=queue: queue.enqueue_many([_pad(book, 2500) for _ in range(5)]))
            held = do(queue, lambda queue=queue: queue.lease(6, lanes=[""]), durable=False)
            do(queue, lambda queue=queue, held=held: queue.ack_many(held[:5]))
            do(queue, lambda queue=queue, held=held: queue.nack(held[5], error="once more", delay=0.5))
            book.clock.advance(1)
            if turn in (2, 4):
                do(queue, queue.compact)
        book.clock.advance(3601)  # now own ids may be forgotten as well
        queue.close()


def unsynced(book: Book) -> None:
    """Two handles on one log: one waits for the disk, the other does not."""
    quick, careful = book.open(fsync=False), book.open()
    do = book.do
    for turn in range(12):
        for _ in range(3):
            do(quick, lambda: quick.enqueue(_pad(book), priority=1), durable=False)
        held = do(quick, lambda: quick.lease(2), durable=False)
        do(quick, lambda held=held: quick.ack_many(held), durable=False)
        if turn % 3 == 1:
            do(careful, lambda turn=turn: careful.enqueue(turn))
            held = do(careful, lambda: careful.lease(2), durable=False)
            do(careful, lambda held=held: careful.ack(held[0]))
        if turn == 7:
            do(careful, lambda: careful.compact())
    let_go(quick)
    let_go(careful)


def openings(book: Book) -> None:
    """Closed and opened again, killed, booted: snapshots, CLOSE records, anchors."""
    do = book.do
    for turn in range(8):
        queue = book.open(fsync=turn % 3 != 1)
        durable = turn % 3 != 1
        do(
            queue,
            lambda queue=queue: queue.enqueue(_pad(book), job_id=f"own-{len(book.steps)}"),
            durable=durable,
        )
        do(
            queue,
            lambda queue=queue: queue.enqueue_many([_pad(book, 2000) for _ in range(3)]),
            durable=durable,
        )
        held = do(queue, lambda queue=queue: queue.lease(3), durable=False)
        do(queue, lambda queue=queue, held=held: queue.ack_many(held[:2]), durable=durable)
        if turn % 2:
            let_go(queue)
        else:
            queue.close()
        if turn % 4 > 1:
            book.clock.reboot()


def trouble(book: Book) -> None:
    """A failed sync, a lock file that goes: the log goes on in a new lineage."""
    do = book.do
    for turn in range(4):
        queue = book.open()
        do(queue, lambda queue=queue: queue.enqueue_many([_pad(book) for _ in range(3)]))
        held = do(queue, lambda queue=queue: queue.lease(2), durable=False)
        do(queue, lambda queue=queue, held=held: queue.ack(held[0]))
        if turn % 2:
            (book.directory / "default.lock").unlink()
        else:
            book.disk.failing_syncs = True
            do(queue, lambda queue=queue: _fails(queue), durable=False)
            book.disk.failing_syncs = False
        let_go(queue)
    queue = book.open()
    do(queue, lambda: queue.enqueue("at last"))
    queue.close()


def deaths(book: Book) -> None:
    """A process dies at each step of a rotation or a compaction, and another one works on."""
    other = book.open()
    book.do(other, lambda: other.enqueue_many([_pad(book) for _ in range(4)], priority=-1))
    for turn in range(28):
        dying = book.open()
        _produce_and_work(book, dying, other)
        book.disk.dies_at = book.disk.position + 1 + turn % 14
        with contextlib.suppress(Killed):
            dying.compact()
        with contextlib.suppress(Killed):
            let_go(dying)
        book.disk.dies_at = 0
        if turn % 3 == 2:
            let_go(other)
            other = book.open()
        _produce_and_work(book, other, other)
    let_go(other)


def _produce_and_work(book: Book, producer: Queue, worker: Queue) -> None:
    book.do(producer, lambda: producer.enqueue_many([_pad(book, 3000) for _ in range(3)]))
    held = book.do(worker, lambda: worker.lease(3), durable=False)
    book.do(worker, lambda: worker.ack_many(held))


def _fails(queue: Queue) -> None:
    with pytest.raises(StorageError) as caught:
        queue.enqueue("whether this is there nobody knows")
    assert caught.value.outcome == "unknown"


WORKLOADS = {work.__name__: work for work in (verbs, compaction, unsynced, openings, trouble, deaths)}
