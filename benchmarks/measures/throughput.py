"""Row `peers`: the same work with each peer, one after the other, round after round."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from benchmarks import work
from benchmarks.figures import Plot, Section, point, ratios
from benchmarks.measures import syncs
from benchmarks.peers import CONTENDERS, OLD, OLD_NOSYNC, REDIS, THIS, THIS_NOSYNC, Contender
from benchmarks.running import Bench, TaskError, settle
from benchmarks.servers import Server, ServerMissing, running

VERBS = {
    "put": "enqueue, one by one",
    "put_batch": "enqueue, many at once",
    "take": "take + finish, one by one",
    "take_batch": "take + finish, many at once",
}
HOW = (
    "In each round every contender in turn gets a fresh process and an empty queue, and about the same "
    "time for each verb; the next round begins with another one. Ratios compare figures of the same "
    "round. Syncs are system calls counted with strace, in the server where there is one."
)


@dataclass
class Results:
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    syncs: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(bench: Bench) -> Section:
    section = Section("peers", "Beside others", HOW + f" Many: {bench.pick(100, work.BATCH):,}.")
    with ExitStack() as stack:
        servers = start_servers(bench, stack)
        present = [c for c in CONTENDERS if is_present(bench, c, servers)]
        found = Results({c.name: {verb: [] for verb in VERBS} for c in present})
        for round_number in bench.rounds():
            turn = round_number % len(present)
            for contender in present[turn:] + present[:turn]:
                one_round(bench, contender, servers, found)
        if syncs.available():
            for contender in present:
                if contender.name not in bench.missing:
                    count_syncs(bench, contender, servers, found)
    rates = {name: r for name, r in found.rates.items() if name not in bench.missing}
    report(section, rates, found.syncs)
    judge(section, rates)
    section.notes += [f"missing: {name}: {why}" for name, why in bench.missing.items()]
    return section


def start_servers(bench: Bench, stack: ExitStack) -> dict[str, Server]:
    servers = {}
    for kind in sorted({c.server for c in CONTENDERS if c.server}):
        wanted = [c for c in CONTENDERS if c.server == kind]
        if all(bench.environment.why_missing(c.who) for c in wanted):
            continue
        try:
            servers[kind] = stack.enter_context(running(kind, bench.work))
        except ServerMissing as error:
            bench.missing.update({c.name: str(error) for c in wanted})
    return servers


def is_present(bench: Bench, contender: Contender, servers: dict[str, Server]) -> bool:
    if why := bench.environment.why_missing(contender.who):
        bench.missing.setdefault(contender.name, why)
    return contender.name not in bench.missing


def one_round(bench: Bench, contender: Contender, servers: dict[str, Server], found: Results) -> None:
    if contender.name in bench.missing:
        return
    bench.say(contender.name)
    settle(0.05)
    try:
        with bench.directory() as directory:
            rates = bench.task(
                "measures.exercise:rates",
                who=contender.who,
                module=contender.module,
                directory=directory,
                server=servers[contender.server].address if contender.server else None,
                options=contender.options,
                seconds=bench.pick(0.03, 0.25),
                backlog=bench.pick(max(contender.backlog // 20, 20), contender.backlog),
                many=bench.pick(100, work.BATCH),
                taken=bench.pick(contender.taken // 10, contender.taken),
            )
    except TaskError as error:
        bench.missing[contender.name] = f"failed here: {error}"
        return
    for verb, rate in rates.items():
        found.rates[contender.name][verb].append(rate)


def count_syncs(bench: Bench, contender: Contender, servers: dict[str, Server], found: Results) -> None:
    server = servers[contender.server] if contender.server else None
    try:
        found.syncs[contender.name] = syncs.per_job(bench, contender, server)
    except TaskError as error:
        bench.say(f"{contender.name}: syncs not counted: {error}")


def report(
    section: Section, rates: dict[str, dict[str, list[float]]], counted: dict[str, dict[str, float]]
) -> None:
    contenders = {c.name: c for c in CONTENDERS}
    for name, by_verb in rates.items():
        contender = contenders[name]
        note = f"{contender.promise}; syncs: {syncs.in_words(counted.get(name))}"
        note += "" if contender.ack else "; taking deletes, nothing is given back when a worker dies"
        for verb, values in by_verb.items():
            section.figure(f"{name}: {VERBS[verb]}", values, "jobs/s", note)
    # Those that sync come first, then by how fast a single job is put in.
    order = sorted(rates, key=lambda name: (not synced(counted.get(name)), -median(rates[name]["put"])))
    section.plots.append(
        Plot(
            "throughput-by-peer.svg",
            "Jobs per second by peer",
            "",
            "jobs per second",
            {
                title: [point(label(name, counted.get(name)), rates[name][verb]) for name in order]
                for verb, title in VERBS.items()
            },
            log_y=True,
        )
    )


def label(name: str, counted: dict[str, float] | None) -> str:
    if counted is None:
        return name
    return f"{name} ({'synced' if synced(counted) else 'NOT synced'})"


def synced(counted: dict[str, float] | None) -> bool:
    """Whether each single job that was put in was on the disk at once."""
    return counted is not None and counted["put"] >= 0.9


def judge(section: Section, rates: dict[str, dict[str, list[float]]]) -> None:
    """The bars that compare with others."""
    bars = (
        (25, THIS, "put_batch", OLD, "put_batch", "enqueue_many, durable: of nobroker 0.1.2"),
        (4, THIS_NOSYNC, "put", OLD_NOSYNC, "put", "enqueue, fsync=False: of nobroker 0.1.2"),
        (
            10,
            THIS,
            "take_batch",
            OLD_NOSYNC,
            "take_batch",
            "lease(1000) + ack_many, durable: of 0.1.2 undurable",
        ),
        (3, THIS_NOSYNC, "take", OLD_NOSYNC, "take", "lease_one + ack, fsync=False: of nobroker 0.1.2"),
        (1.5, THIS, "put", REDIS, "put", "enqueue, durable: of Redis, appendfsync always"),
        (3, THIS, "put_batch", REDIS, "put_batch", "enqueue_many, durable: of Redis, appendfsync always"),
    )
    for limit, ours, our_verb, theirs, their_verb, name in bars:
        if ours in rates and theirs in rates:
            values = ratios(rates[ours][our_verb], rates[theirs][their_verb])
            section.at_least(limit, name, values, "x")
        else:
            section.not_judged[name] = f"{ours if ours not in rates else theirs} is missing"
