"""One run of a placement in ticks of 20 ms: tuples flow as amounts, with their mean times.

What passes a link is a series of batches. A batch holds an amount of tuples with the mean of when
the oldest reading in each was due, the mean moment they arrive at (seconds, not whole ticks), how
long they take to arrive one after the other, and a watermark. So a tuple can pass several
operators in a tick; ticks only bound what CPU a host has. All times are s, sizes bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nova_core.kernel_cache import njit

Floats = NDArray[np.float64]
Records = NDArray[np.void]

TICK = 0.02
"""The period of Linux's CPU limits (CFS bandwidth control as the rack sets it), s."""

SOURCE, PASS, JOIN, AGGREGATE, SINK = range(5)
"""Kinds of stages; what neither joins nor aggregates in windows passes tuples on."""

RING = 1024
"""Batches that a link holds at most, whatever their size."""

WITHOUT_LIMIT = 1.0
"""Cores that a host has at least before its limit is in force."""

ROUNDS = 3
"""Rounds in which a tick's CPU is dealt out: what some tasks leave goes to those that need more."""

# Columns of a batch; the first due time is a bound that no reading in it is older than.
AMOUNT, DUE, SPREAD, LAG, READY, SPAN, BEGIN, END, MARK, FIRST = range(10)
# Columns of a window: four for each input (amount, sums of due times, of their squares, of lags),
# the moment it is complete, the heap it takes, and the first due time.
LAST, HELD, EARLIEST = 8, 9, 10
NOTHING = 1e-9


class Constants(NamedTuple):
    """What work costs, and how much fits: what is fitted to measured runs.

    The defaults are guesses within a factor of two or three: some are told by Nova's own
    configuration of Flink or by what an idle process takes, most are what such code takes on one
    core of a current server. `fit` replaces them.

    Attributes:
        source_us: CPU of a reading that a source emits, us.
        step_us: CPU of a tuple that passes a filter, a projection or a cut.
        gather_us: CPU of a tuple and a window that it is put into.
        pair_us: CPU of a pair that a join compares.
        result_us: CPU of a result that a window emits.
        sink_us: CPU of a result that a sink writes.
        send_us: CPU of a tuple at each end of a link between tasks.
        byte_us: CPU of a byte there.
        wake_us: CPU of an input that wakes a task: its network buffer, its watermark.
        wait_ms: how long a tuple waits for its buffer to leave its source, ms.
        buffer_kb: what is on a link at most, kB: sent, under way or waiting to be taken.
        state_bytes: heap that a tuple in a window takes, beside twice its own size.
        jvm_mb: memory of a host's process that holds no state, MB.
        collection: CPU of garbage collection per CPU of work, where half of the heap is in use.
        idle: cores that a host's process takes without any tuples.
    """

    source_us: float = 3.0
    step_us: float = 0.5
    gather_us: float = 1.0
    pair_us: float = 0.2
    result_us: float = 2.0
    sink_us: float = 8.0
    send_us: float = 1.5
    byte_us: float = 0.005
    wake_us: float = 60.0
    wait_ms: float = 5.0
    buffer_kb: float = 512.0
    state_bytes: float = 250.0
    jvm_mb: float = 290.0
    collection: float = 0.1
    idle: float = 0.01


# What runs, as records: a kernel takes each table as one argument. Fields of the first part of each
# are given, those behind are the run's own.
STAGE = np.dtype(
    [
        ("kind", "i8"),
        ("host", "i8"),
        ("task", "i8"),  # the thread it runs in
        ("links", "i8"),  # first link behind it, and one past the last
        ("links_end", "i8"),
        ("inputs", "i8"),  # its part of `Network.into`
        ("inputs_end", "i8"),
        ("rate", "f8"),  # tuples/s of a source
        ("steps", "f8"),  # filters, projections and cuts a tuple emitted passes there, on average
        ("gain", "f8"),  # tuples emitted per tuple, of what passes tuples on
        ("size", "f8"),  # length of windows, s
        ("slide", "f8"),  # distance of their beginnings, s
        ("match", "f8"),  # results of a join per pair of tuples in a window
        ("compared", "f8"),  # pairs it compares per pair
        ("groups", "f8"),  # of an aggregate
        ("combines", "?"),  # whether an aggregate's inputs are partial results
        ("emit", "f8"),  # CPU of a tuple emitted, s
        ("begin", "f8"),  # when its first window begins
        ("first", "i8"),  # its windows, and one past the last
        ("last", "i8"),
        ("fired", "i8"),  # windows whose results were made
        ("told", "f8"),  # watermark that was handed on
        ("seen", "f8"),  # moment and span of what was taken or emitted last
        ("seen_span", "f8"),
        ("emitted", "f8"),  # tuples
        ("late", "f8"),  # how far a source is behind, s; of the last second, the least
        ("amount", "f8"),  # results that wait to be sent, as a batch
        ("due", "f8"),
        ("spread", "f8"),
        ("lag", "f8"),
        ("ready", "f8"),
        ("closes", "f8"),
        ("earliest", "f8"),
        ("work", "f8"),  # and the CPU that they take
    ]
)
LINK = np.dtype(
    [
        ("producer", "i8"),
        ("consumer", "i8"),
        ("side", "i8"),  # input of the consumer, 0 or 1
        ("kept", "?"),  # whether its tuples stay in the windows that they are results of
        ("share", "f8"),  # tuples sent per tuple the producer emits
        ("size", "f8"),  # bytes of a tuple
        ("sent", "f8"),  # of these, its part where a tuple is sent once for several links
        ("delay", "f8"),  # s
        ("channel", "i8"),  # whose bandwidth it shares; -1 on one host
        ("chained", "?"),  # whether it is a call within a task
        ("take", "f8"),  # CPU of a tuple taken, s
        ("hold", "f8"),  # heap of a tuple in a window, bytes
        ("fits", "f8"),  # tuples
        ("head", "i8"),  # oldest batch
        ("count", "i8"),  # batches
        ("queued", "f8"),  # tuples
        ("mark", "f8"),  # watermark that the consumer has
        ("taken", "f8"),  # tuples
    ]
)
HOST = np.dtype(
    [
        ("cpu", "f8"),  # cores, inf where there is no limit
        ("memory", "f8"),  # bytes, inf where it is not known
        ("heap", "f8"),  # bytes for state
        ("held", "f8"),  # of these, in use
        ("slow", "f8"),  # CPU per CPU of work
        ("left", "f8"),  # CPU left in the tick, s
        ("sharing", "f8"),  # tasks that it is dealt out to
    ]
)
TASK = np.dtype(
    [
        ("host", "i8"),
        ("clock", "f8"),  # until when it is busy
        ("share", "f8"),  # CPU it may take in the round, s
        ("used", "f8"),  # CPU it took in the tick
        ("hungry", "?"),  # whether it could use more
    ]
)
CHANNEL = np.dtype(
    [
        ("bandwidth", "f8"),  # bytes/s from one host to another
        ("clock", "f8"),  # until when it is busy
    ]
)


class Network(NamedTuple):
    """Stages on hosts, producers before consumers, and the links between them.

    Attributes:
        stage: (s,) of `STAGE`.
        link: (l,) of `LINK`, in order of producers.
        into: (l,) links in order of consumers.
        host: (h,) of `HOST`.
        task: (t,) of `TASK`: a stage with one input on the same host runs in that of its producer.
        channel: (c,) of `CHANNEL`.
    """

    stage: Records
    link: Records
    into: NDArray[np.int64]
    host: Records
    task: Records
    channel: Records


class Outcome(NamedTuple):
    """What a run is measured by.

    Attributes:
        arrived: (a, 5) batches of results that arrived while it was measured: how many results, and
            of the oldest reading in each of them the mean of arrival - due time, its standard
            deviation, and the mean of emission - due time, s; the stage that received them.
        taken: (l,) tuples taken from each link in all.
        emitted: (s,) tuples each stage emitted in all.
        behind: (s,) how late each source was in the last second, at least, s; 0 of other stages.
        failed: s after which a host ran out of memory; ``inf`` where none did.
    """

    arrived: Floats
    taken: Floats
    emitted: Floats
    behind: Floats
    failed: float


class _Run(NamedTuple):
    stage: Records
    link: Records
    into: NDArray[np.int64]
    host: Records
    task: Records
    channel: Records
    batch: Floats  # (l, RING, 10) on each link
    window: Floats  # (w, 11)
    out: Floats  # (10,) the batch that is made
    arrived: Floats  # (a, 5) of `Outcome`
    arrivals: NDArray[np.int64]  # (1,) how many of these there are
    wake: float  # CPU of an input that wakes a task, s
    pair: float  # CPU of a pair that a join compares, s
    wait: float  # of a tuple before it leaves its source, s
    begin: float  # when it is measured, s
    end: float


@njit(cache=True, nogil=True)
def simulate(network: Network, constants: Constants, warm_up: float, measured: float) -> Outcome:
    """Run a placement.

    Sources and windows begin at time 0. CPU limits are in force from half of the warm-up on, as
    when a corpus is run on hosts (`corpus.rounds`).

    Args:
        network: what runs where.
        constants: what it costs.
        warm_up: s before it is measured.
        measured: s.
    """
    run = _prepare(network, constants, warm_up, warm_up + measured)
    failed = math.inf
    for host in run.host:
        if host.heap <= 0:
            failed = 0.0
    ticks, limited = round(run.end / TICK), round(warm_up / 2 / TICK)
    for tick in range(ticks if failed > 0 else 0):
        for h in range(len(run.host)):
            host = run.host[h]
            cores = host.cpu if tick >= limited else max(host.cpu, WITHOUT_LIMIT)
            # Work that cannot be divided may have taken more than there was.
            host.left = min(0.0, host.left) + max(0.0, cores - constants.idle) * TICK
        _tick(run, tick * TICK)
        for h in range(len(run.host)):
            host = run.host[h]
            if host.held >= host.heap:
                failed = (tick + 1) * TICK
            elif host.heap < math.inf:
                host.slow = 1 + constants.collection * host.held / (host.heap - host.held)
        for s in range(len(run.stage)):
            one = run.stage[s]
            if one.kind == SOURCE:
                late = (tick + 1) * TICK - one.emitted / one.rate
                one.late = late if tick * TICK < run.end - 1 else min(one.late, late)
        if failed < math.inf:
            break
    arrived = run.arrived[: run.arrivals[0]].copy()
    taken, emitted = run.link["taken"].copy(), run.stage["emitted"].copy()
    return Outcome(arrived, taken, emitted, run.stage["late"].copy(), failed)


@njit(cache=True, nogil=True)
def _prepare(network: Network, constants: Constants, begin: float, end: float) -> _Run:
    """Copy what changes, with the CPU and memory of each tuple and room for windows."""
    stage, link, host = network.stage.copy(), network.link.copy(), network.host.copy()
    windows = 0
    for s in range(len(stage)):
        one = stage[s]
        one.emit = one.steps * constants.step_us * 1e-6
        if one.kind == SOURCE:
            one.emit += constants.source_us * 1e-6
        one.first = windows
        if one.kind == JOIN or one.kind == AGGREGATE:
            one.emit += constants.result_us * 1e-6
            one.begin = -(math.ceil(one.size / one.slide - NOTHING) - 1) * one.slide
            windows += math.ceil((end - one.begin) / one.slide) + 2
        one.last = windows
    for number in range(len(link)):
        one = link[number]
        to = stage[one.consumer]
        one.take, one.fits = 0.0, math.inf
        if not one.chained:
            cost = (constants.send_us + one.size * constants.byte_us) * 1e-6
            stage[one.producer].emit += one.share * one.sent / one.size * cost
            one.take = cost
            one.fits = max(1.0, constants.buffer_kb * 1e3 / one.size)
        if to.kind == PASS:
            one.take += constants.step_us * 1e-6
        elif to.kind == SINK:
            one.take += constants.sink_us * 1e-6
        else:
            overlap = 1.0 if one.kept else to.size / to.slide
            one.take += constants.gather_us * 1e-6 * overlap
            one.hold = (2 * one.size + constants.state_bytes) / overlap
    for number in range(len(host)):
        host[number].heap = host[number].memory - constants.jvm_mb * 1e6
        host[number].slow = 1.0
    # A few batches per tick and sink; more are put together.
    arrivals = 64
    for one in stage:
        arrivals += (4 * round((end - begin) / TICK)) * (one.kind == SINK)
    return _Run(
        stage, link, network.into, host, network.task.copy(), network.channel.copy(),
        np.empty((len(link), RING, 10)), np.zeros((windows, 11)), np.zeros(10),
        np.empty((arrivals, 5)), np.zeros(1, np.int64),
        constants.wake_us * 1e-6, constants.pair_us * 1e-6, constants.wait_ms * 1e-3, begin, end,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _tick(run: _Run, now: float) -> None:
    """Deal out a tick's CPU, first in equal parts, then what is left to whom it is not enough."""
    for t in range(len(run.task)):
        task = run.task[t]
        if task.hungry:
            # It had no CPU, or no room behind it, until now.
            task.clock = max(task.clock, now)
        task.used = 0.0
        task.hungry = True
    for _ in range(ROUNDS):
        for h in range(len(run.host)):
            run.host[h].sharing = 0.0
        for t in range(len(run.task)):
            if run.task[t].hungry:
                run.host[run.task[t].host].sharing += 1
        busy = False
        for t in range(len(run.task)):
            task = run.task[t]
            task.share = 0.0
            if task.hungry:
                host = run.host[task.host]
                task.share = min(host.left / host.sharing, TICK - task.used)
                task.hungry = task.share <= NOTHING
                busy |= not task.hungry
        if not busy:
            return
        for s in range(len(run.stage)):
            if run.task[run.stage[s].task].share > NOTHING:
                if run.stage[s].kind == SOURCE:
                    _emit(run, s, now)
                else:
                    _work(run, s, now)


@njit(cache=True, nogil=True)
def _pass(
    ready: float, span: float, work: float, each: float, amount: float, clock: float
) -> tuple[float, float, float]:
    """A batch passes what serves one tuple after the other.

    Args:
        ready: mean moment at which its tuples arrive.
        span: how long they take to.
        work: what serving them takes.
        each: what serving one takes.
        amount: how many there are; of less than one, that many come on average.
        clock: until when others are served.

    Returns:
        The mean moment its tuples leave, how long they take to, and until when it was served.
    """
    begin = max(ready - span / 2, clock)
    arriving = max(0.0, ready + span / 2 - begin)
    until = max(work, arriving)
    # Where all are there at once, the first is served from the beginning on.
    mean = begin + until / 2 + each - (until - arriving) / 2 / max(amount, 1.0)
    return mean, until, begin + work


@njit(cache=True, nogil=True)
def _room(run: _Run, s: int) -> float:
    """How many tuples a stage may emit until a link behind it is full."""
    room = math.inf
    for number in range(run.stage[s].links, run.stage[s].links_end):
        link = run.link[number]
        fits = link.fits - link.queued
        # A call returns when what was handed on is done.
        if link.count > RING - 4 or (link.chained and link.queued > NOTHING):
            fits = 0.0
        room = min(room, fits / max(link.share, NOTHING))
    return max(room, 0.0)


@njit(cache=True, nogil=True)
def _share(share: float, wake: float, each: float) -> float:
    """How many tuples a task's share of a round is enough for.

    Where it is less than waking up takes, the host owes the rest to the next tick.
    """
    left = share - wake if share > wake else share
    return left / each if each > 0 else math.inf


@njit(cache=True, nogil=True)
def _spend(run: _Run, s: int, work: float) -> None:
    task = run.task[run.stage[s].task]
    task.share -= work
    task.used += work
    run.host[run.stage[s].host].left -= work


@njit(cache=True, nogil=True)
def _send(run: _Run, s: int) -> None:
    """Put the batch that is made on all links behind a stage."""
    for number in range(run.stage[s].links, run.stage[s].links_end):
        link = run.link[number]
        batch = run.batch[number, (link.head + link.count) % RING]
        batch[:] = run.out
        amount = run.out[AMOUNT] * link.share
        batch[AMOUNT] = amount
        if link.channel >= 0:
            channel = run.channel[link.channel]
            work = amount * link.sent / channel.bandwidth
            batch[READY], batch[SPAN], channel.clock = _pass(
                batch[READY],
                batch[SPAN],
                work,
                link.sent / channel.bandwidth,
                amount,
                channel.clock,
            )
        batch[READY] += link.delay
        link.queued += amount
        link.count += 1


@njit(cache=True, nogil=True)
def _emit(run: _Run, s: int, now: float) -> None:
    """A source emits what is due, or as much of it as there is CPU and room for."""
    one = run.stage[s]
    task, slow = run.task[one.task], run.host[one.host].slow
    amount = one.rate * (now + TICK) - one.emitted
    if amount <= NOTHING:
        return
    wake, each = run.wake * slow, one.emit * slow
    fits = min(_share(task.share, wake, each), _room(run, s))
    if fits < amount:
        task.hungry = True
        amount = fits
        if amount <= NOTHING:
            return
    begin, end = one.emitted / one.rate, (one.emitted + amount) / one.rate
    work = amount * each + wake
    due, out = (begin + end) / 2, run.out
    mean, span, task.clock = _pass(due, end - begin, work, each + wake, amount, task.clock)
    _spend(run, s, work)
    one.emitted += amount
    out[AMOUNT], out[DUE], out[SPREAD] = amount, due, (end - begin) ** 2 / 12
    # A reading is emitted when it is taken up, before the work on it.
    out[LAG] = max(0.0, mean - each - wake - due)
    out[READY], out[SPAN] = mean + run.wait, span
    out[BEGIN], out[END], out[MARK], out[FIRST] = begin, end, end, begin
    _send(run, s)


@njit(cache=True, nogil=True)
def _work(run: _Run, s: int, now: float) -> None:
    """A stage emits results of complete windows, then takes what has arrived, in turns."""
    one = run.stage[s]
    windowed = one.kind == JOIN or one.kind == AGGREGATE
    while True:
        if windowed and not _flush(run, s, now):
            return
        if not _take(run, s, now):
            break
    if one.links_end == one.links:
        return
    mark = _mark(run, s)
    if mark > one.told + NOTHING:
        if _room(run, s) <= NOTHING:
            run.task[one.task].hungry = True
            return
        out = run.out
        out[:] = 0.0
        out[READY], out[SPAN] = one.seen, one.seen_span
        out[BEGIN], out[END], out[MARK] = mark, mark, mark
        one.told = mark
        _send(run, s)


@njit(cache=True, nogil=True)
def _mark(run: _Run, s: int) -> float:
    """The watermark up to which a stage has received everything."""
    mark = math.inf
    for at in range(run.stage[s].inputs, run.stage[s].inputs_end):
        mark = min(mark, run.link[run.into[at]].mark)
    return mark


@njit(cache=True, nogil=True)
def _flush(run: _Run, s: int, now: float) -> bool:
    """Emit the results of all windows that are complete; whether all are out."""
    one = run.stage[s]
    task, slow, out = run.task[one.task], run.host[one.host].slow, run.out
    while True:
        if one.work <= 0:
            if not _fire(run, s):
                return True
            continue
        if one.ready >= now + TICK:
            return False
        work = one.work * slow
        part = min(1.0, task.share / work, _room(run, s) / max(one.amount, NOTHING))
        if part < 1:
            task.hungry = True
            if part < 1e-6:
                return False
        work, amount = work * part, one.amount * part
        out[AMOUNT], out[DUE], out[SPREAD], out[LAG] = amount, one.due, one.spread, one.lag
        out[BEGIN], out[END], out[MARK], out[FIRST] = one.closes, one.closes, -1.0, one.earliest
        out[READY], out[SPAN], task.clock = _pass(
            one.ready, 0.0, work, one.emit * slow, amount, task.clock
        )
        one.seen, one.seen_span = max(one.seen, task.clock), 0.0
        _spend(run, s, work)
        one.emitted += amount
        _send(run, s)
        one.amount -= amount
        one.work = one.work * (1 - part) if part < 1 else 0.0


@njit(cache=True, nogil=True)
def _fire(run: _Run, s: int) -> bool:
    """Let the results of the next window wait to be sent; False where it is not complete."""
    one = run.stage[s]
    closes = one.begin + one.fired * one.slide + one.size
    if one.first + one.fired >= one.last or closes > _mark(run, s) + NOTHING:
        return False
    window = run.window[one.first + one.fired]
    one.fired += 1
    run.host[one.host].held -= window[HELD]
    left, right = window[0], window[4]
    if left <= NOTHING or (one.kind == JOIN and right <= NOTHING):
        return True
    one.due = window[1] / left
    one.spread = max(0.0, window[2] / left - one.due**2)
    one.lag = window[3] / left
    one.work = NOTHING
    if one.kind == JOIN:
        one.amount = one.match * left * right
        # Results of a pair's kind may outnumber the estimate of what has equal keys.
        compared = max(one.amount, one.compared * left * right)
        one.work += compared * run.pair
        other = window[5] / right
        others = max(0.0, window[6] / right - other**2)
        older, one.due, one.spread = _older(one.due, one.spread, other, others)
        one.lag = older * one.lag + (1 - older) * window[7] / right
    else:
        one.amount = _distinct(left, one.groups, one.combines)
        # The oldest of k tuples spread evenly over a length: k + 1 equal gaps on average.
        k = max(1.0, left / one.amount)
        one.due -= math.sqrt(3 * one.spread) * (k - 1) / (k + 1)
        one.due = max(one.due, window[EARLIEST])
        one.spread *= 12 * k / ((k + 1) ** 2 * (k + 2))
    # No reading is older than the first: where most are as old, they differ little.
    one.spread = min(one.spread, (one.due - window[EARLIEST]) ** 2)
    one.work += one.amount * one.emit
    one.ready, one.closes, one.earliest = window[LAST], closes, window[EARLIEST]
    return True


@njit(cache=True, nogil=True)
def _distinct(amount: float, groups: float, partial: bool) -> float:
    """How many groups a window has: each tuple is of any with equal chance."""
    if partial:
        return min(amount, groups)
    return groups * -math.expm1(-amount / groups)


@njit(cache=True, nogil=True)
def _older(mean: float, spread: float, other: float, others: float) -> tuple[float, float, float]:
    """The lesser of two independent times by their means and variances (Clark 1961).

    Exact for normal ones; for two that are spread evenly over a window it is 2 % off.

    Returns:
        How often it is the first one, its mean, its variance.
    """
    apart = math.sqrt(spread + others)
    if apart < NOTHING:
        first = 1.0 if mean < other else 0.5 if mean == other else 0.0
        return first, min(mean, other), 0.0
    a = (other - mean) / apart
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    first = 0.5 * (1 + math.erf(a / math.sqrt(2)))
    # Relative to the first one's mean, so that squares stay small.
    shift = other - mean
    lesser = shift * (1 - first) - apart * density
    square = spread * first + (shift**2 + others) * (1 - first) - shift * apart * density
    return first, mean + lesser, max(0.0, square - lesser**2)


@njit(cache=True, nogil=True)
def _take(run: _Run, s: int, now: float) -> bool:
    """Take the batch that arrived first; False where there is none, or no CPU or room for it."""
    one = run.stage[s]
    number, earliest = -1, now + TICK
    for at in range(one.inputs, one.inputs_end):
        candidate = run.into[at]
        if run.link[candidate].count > 0:
            ready = run.batch[candidate, run.link[candidate].head, READY]
            if ready < earliest:
                number, earliest = candidate, ready
    if number < 0:
        return False
    link, task, slow = run.link[number], run.task[one.task], run.host[one.host].slow
    batch = run.batch[number, link.head]
    amount = batch[AMOUNT]
    wake = 0.0 if link.chained else run.wake * slow
    each = link.take * slow
    room = math.inf
    if one.kind == PASS:
        each += one.gain * one.emit * slow
        room = _room(run, s) / one.gain
    part = 1.0
    if task.share <= NOTHING:
        task.hungry = True
        return False
    fits = min(_share(task.share, wake, each), room)
    if fits < amount:
        task.hungry = True
        part = fits / amount
        if part < 1e-6:
            return False
    mine = amount * part
    work = mine * each + wake
    length = batch[END] - batch[BEGIN]
    due, until = batch[DUE] - (1 - part) * length / 2, batch[BEGIN] + part * length
    mean, span, task.clock = _pass(batch[READY], batch[SPAN], work, each + wake, mine, task.clock)
    _spend(run, s, work)
    link.taken += mine
    link.queued -= mine
    one.seen, one.seen_span = mean, span
    if mine > 0 and one.kind == SINK:
        if run.begin <= mean < run.end:
            at = run.arrivals[0]
            if at == len(run.arrived):
                at -= 1
                while at > 0 and run.arrived[at, 4] != s:
                    at -= 1
                mine += run.arrived[at, 0]
            row = run.arrived[at]
            # Readings as such arrive as far apart as they were due.
            apart = 0.0 if length > NOTHING else math.sqrt(batch[SPREAD])
            row[0], row[1], row[2], row[3] = mine, mean - due, apart, batch[LAG]
            row[4] = s
            run.arrivals[0] = min(run.arrivals[0] + 1, len(run.arrived))
    elif mine > 0 and one.kind == PASS:
        out = run.out
        out[:] = batch
        out[AMOUNT] = mine * one.gain
        out[DUE], out[END], out[READY], out[SPAN], out[MARK] = due, until, mean, span, -1.0
        one.emitted += out[AMOUNT]
        _send(run, s)
    elif mine > 0:
        _gather(
            run, number, mine, due, batch[SPREAD], batch[LAG], batch[BEGIN], until, batch[FIRST]
        )
    if part < 1:
        batch[AMOUNT] -= mine
        batch[DUE] += part * length / 2
        batch[BEGIN] = until
        return False
    if batch[MARK] > link.mark:
        if one.kind == JOIN or one.kind == AGGREGATE:
            _complete(run, s, link.mark, batch[MARK], mean, span)
        link.mark = batch[MARK]
    link.head = (link.head + 1) % RING
    link.count -= 1
    return True


@njit(cache=True, nogil=True)
def _complete(run: _Run, s: int, before: float, mark: float, mean: float, span: float) -> None:
    """Note for windows that end within a watermark's step when it reached their end."""
    one = run.stage[s]
    number = math.floor((before - one.size - one.begin) / one.slide + NOTHING) + 1
    number = max(number, one.fired)
    while one.first + number < one.last:
        closes = one.begin + number * one.slide + one.size
        if closes > mark + NOTHING:
            return
        reached = mean + ((closes - before) / (mark - before) - 0.5) * span
        window = run.window[one.first + number]
        window[LAST] = max(window[LAST], reached)
        number += 1


@njit(cache=True, nogil=True)
def _gather(
    run: _Run, link: int, amount: float, due: float, spread: float, lag: float, begin: float,
    end: float, first: float,
) -> None:  # fmt: skip
    """Put tuples of an interval of event time, or of one moment, into their windows."""
    one = run.stage[run.link[link].consumer]
    length = end - begin
    if length <= NOTHING and run.link[link].kept:
        number = round((end - one.size - one.begin) / one.slide)
        _put(run, link, number, amount, due, spread, lag, first)
        return
    # The event time of results is just before the end of their window.
    inside = begin if length > NOTHING else end - 1e-6
    number = math.floor((inside - one.size - one.begin) / one.slide + NOTHING) + 1
    while True:
        opens = one.begin + number * one.slide
        if opens >= end - NOTHING:
            return
        if length <= NOTHING:
            _put(run, link, number, amount, due, spread, lag, first)
        else:
            low, high = max(opens, begin), min(opens + one.size, end)
            if high > low:
                moved = due + (low + high - begin - end) / 2
                some = amount * (high - low) / length
                _put(run, link, number, some, moved, spread, lag, low)
        number += 1


@njit(cache=True, nogil=True)
def _put(
    run: _Run, link: int, number: int, amount: float, due: float, spread: float, lag: float,
    first: float,
) -> None:  # fmt: skip
    one = run.stage[run.link[link].consumer]
    if number < one.fired or one.first + number >= one.last:
        return
    window, at = run.window[one.first + number], 4 * run.link[link].side
    held = amount
    if one.kind == AGGREGATE:
        held = _distinct(window[at] + amount, one.groups, one.combines)
        held -= _distinct(window[at], one.groups, one.combines)
    held *= run.link[link].hold
    if window[0] + window[4] <= 0 or first < window[EARLIEST]:
        window[EARLIEST] = first
    window[at] += amount
    window[at + 1] += amount * due
    window[at + 2] += amount * (due * due + spread)
    window[at + 3] += amount * lag
    window[HELD] += held
    run.host[one.host].held += held
