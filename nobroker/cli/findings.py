"""What a look at the log found, in words: what is wrong, where, what is lost, what to type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nobroker.cli.failures import CommandError
from nobroker.cli.settings import Settings

if TYPE_CHECKING:
    from nobroker_mmap.check import Finding
    from nobroker_mmap.losses import Loss

_SHOWN_RANGES = 12
_WIDTH = 8


def look(settings: Settings) -> list[Finding]:
    """Everything that is wrong with the queue on the disk, also where it cannot be opened."""
    from nobroker.cli import output
    from nobroker.stores.log import check
    from nobroker_mmap.mounts import doubt_about

    settings.must_exist()
    doubt = doubt_about(settings.dir)
    if doubt is not None and (doubt.kind == "network" or output.on_terminal()):
        output.note(f"warning: {settings.dir} is on {doubt.file_system}: {doubt.reason}")
    return check(settings.dir, settings.queue)


def with_numbering(settings: Settings, findings: Iterable[Finding]) -> list[tuple[Finding, str]]:
    """Each finding with what is lost there, in words; '' where nothing is."""
    listed = list(findings)
    if any(finding.length and not finding.keys_known for finding in listed):
        holes = _Numbering(settings)
        return [(finding, _lost(finding, holes)) for finding in listed]
    return [(finding, _lost(finding, None)) for finding in listed]


def show(findings: Iterable[tuple[Finding, str]]) -> None:
    """Print findings: a block each on a terminal, a line each in a pipe."""
    from nobroker.cli import output

    for finding, lost in findings:
        what = finding.message + (f" ({finding.length:,} bytes)" if finding.length else "")
        if not output.on_terminal():
            parts = [what, f"lost: {lost}" if lost else "", f"do: {finding.advice}"]
            where = f"{finding.severity}: {finding.path}, offset {finding.offset}"
            output.line(f"{where}: {'; '.join(part for part in parts if part)}")
            continue
        output.line(f"{finding.severity.upper():<{_WIDTH}} {finding.path}, offset {finding.offset:,}")
        for name, text in (("what", what), ("lost", lost), ("do", finding.advice)):
            if text:
                output.line(f"  {name:<{_WIDTH - 2}} {text}")


def as_dict(finding: Finding, lost: str) -> dict[str, Any]:
    """A finding for JSON."""
    from nobroker.cli import output

    return {**output.fields(finding), "keys": [list(keys) for keys in finding.keys], "lost": lost}


def from_losses(losses: Sequence[Loss]) -> list[Finding]:
    """The losses of a salvage as findings, for the same words."""
    from nobroker_mmap.check import Finding

    return [
        Finding("damage", loss.path, loss.offset, loss.reason, "", loss.length, loss.keys, loss.keys_known)
        for loss in losses
    ]


def refuse(settings: Settings, findings: Iterable[Finding]) -> None:
    """Raise `CommandError` when there is something that somebody has to do."""
    from nobroker.cli import output

    listed = [finding for finding in findings if finding.severity == "damage" or _to_do(finding)]
    harm = damage(listed)
    if harm:
        lost = sum(finding.length for finding in harm)
        raise CommandError(
            f"queue {settings.queue!r} is damaged: {output.plural(len(harm), 'finding')},"
            f" {lost:,} bytes lost; nothing was changed; look at the disk before you repair it"
        )
    if listed:
        raise CommandError(
            f"{output.plural(len(listed), 'finding')} in queue {settings.queue!r}; no job is lost"
        )


def _to_do(finding: Finding) -> bool:
    return finding.severity == "warning" and not finding.advice.startswith("nothing")


def damage(findings: Iterable[Finding]) -> list[Finding]:
    """Those of promised records."""
    return [finding for finding in findings if finding.severity == "damage"]


def _lost(finding: Finding, numbering: _Numbering | None) -> str:
    if not finding.length:
        return ""
    if finding.keys_known or numbering is None:
        if finding.keys:
            return _jobs(finding.keys)
        return "no job; a lease, an ack or a retry was recorded there, so a job may run again"
    hole = numbering.hole(finding)
    known = f"{_jobs(finding.keys)}, and perhaps more" if finding.keys else ""
    return known or hole


def _jobs(ranges: Sequence[tuple[int, int]]) -> str:
    from nobroker.cli import output

    count = sum(last - first + 1 for first, last in ranges)
    named = [f"{first}" if first == last else f"{first} to {last}" for first, last in ranges[:_SHOWN_RANGES]]
    more = " and more" if len(ranges) > _SHOWN_RANGES else ""
    return f"{output.plural(count, 'job')}: number {', '.join(named)}{more}"


class _Numbering:
    """Where no index is left: sequence numbers rise along the log, so a hole in it bounds what it held."""

    def __init__(self, settings: Settings) -> None:
        from nobroker.errors import NobrokerError
        from nobroker.state.kinds import ENQUEUE
        from nobroker_tools.scan import LogScan

        self._places: list[tuple[int, int, int, int]] = []
        try:
            scan = LogScan(settings.dir, settings.queue, lambda text: None)
            for record in scan.records(frozenset({ENQUEUE})):
                head = record.head()
                self._places.append((record.segment, record.offset, head["s"], head["s"] + head["n"]))
        except (NobrokerError, KeyError, TypeError):
            self._places.clear()  # unreadable: nothing can be said

    def hole(self, finding: Finding) -> str:
        """What can have been at a place that is lost."""
        from nobroker_mmap.format import split_segment_name

        split = split_segment_name(Path(finding.path).name)
        if split is None or not self._places:
            return "which jobs cannot be known"
        place = split[1], finding.offset
        before = max((end for segment, at, _, end in self._places if (segment, at) < place), default=1)
        after = min((first for segment, at, first, _ in self._places if (segment, at) > place), default=None)
        if after is None:
            return f"which jobs cannot be known; their numbers would be {before} and above"
        if after <= before:
            return "no job; a lease, an ack or a retry was recorded there, so a job may run again"
        return f"at most {_jobs([(before, after - 1)])}"
