"""One timer for many clocks: never early, at most one slot late, free while nothing is due."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest
import uvloop

from sse_proxy.server.wheel import TimerWheel
from tests.fakes import eventually

RESOLUTION = 0.05


class _Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback, self.cancelled = when, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """The three methods a wheel uses, on a clock that moves when told."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.timers: list[_Timer] = []
        self.armed = self.wakeups = 0
        self.faults: list[dict[str, Any]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Timer:
        self.armed += 1
        timer = _Timer(when, callback)
        self.timers.append(timer)
        return timer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(context)

    def pending(self) -> list[_Timer]:
        self.timers = [timer for timer in self.timers if not timer.cancelled]
        return self.timers

    def run_until(self, end: float, lag: float = 0.0) -> None:
        """Fire every timer up to `end`, each `lag` seconds late."""
        while due := sorted((t for t in self.pending() if t.when <= end), key=lambda timer: timer.when):
            self.timers.remove(due[0])
            self.now = max(self.now, due[0].when + lag)
            self.wakeups += 1
            assert self.wakeups < 100_000, "the wheel spins"
            due[0].callback()
        self.now = max(self.now, end)


class Clock:
    """An entry that notes when it was called and asks for what `then` says."""

    def __init__(self, then: Callable[[float], float | None] = lambda now: None) -> None:
        self.wheel_slot: int | None = None
        self.calls: list[float] = []
        self._then = then

    def on_tick(self, now: float) -> float | None:
        self.calls.append(now)
        return self._then(now)


def wheel_on(loop: FakeLoop, resolution_s: float = RESOLUTION) -> TimerWheel:
    return TimerWheel(cast(asyncio.AbstractEventLoop, loop), resolution_s)


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.mark.parametrize("resolution", [0.05, 0.01, 0.1, 0.007, 1 / 3, 2.0])
def test_never_early_and_at_most_one_slot_late(resolution: float) -> None:
    loop = FakeLoop()
    wheel = wheel_on(loop, resolution)
    dice = random.Random(7)
    clocks = []
    for _ in range(2000):
        when = loop.now + dice.choice([dice.uniform(0, 60), dice.randrange(600) / 10, dice.randrange(60_000) / 1000])
        clock = Clock()
        wheel.schedule(clock, when)
        clocks.append((clock, when))
    loop.run_until(loop.now + 70)
    for clock, when in clocks:
        assert len(clock.calls) == 1
        assert when <= clock.calls[0] <= when + resolution * 1.000001
        assert clock.wheel_slot is None
    assert not loop.pending()


def test_the_earliest_time_wins(loop: FakeLoop) -> None:
    wheel, clock = wheel_on(loop), Clock()
    wheel.schedule(clock, 1005)
    wheel.schedule(clock, 1009)
    wheel.schedule(clock, 1002)
    wheel.schedule(clock, 1003)
    loop.run_until(1020)
    assert clock.calls == [1002]


def test_an_entry_comes_back_when_it_asks_to(loop: FakeLoop) -> None:
    times = iter([1001.0, 1004.0, None])
    clock = Clock(lambda now: next(times))
    wheel_on(loop).schedule(clock, 1000.5)
    loop.run_until(1020)
    assert clock.calls == [1000.5, 1001, 1004]


def test_idle_entries_cost_nothing_between_their_deadlines(loop: FakeLoop) -> None:
    wheel = wheel_on(loop)
    clocks = [Clock() for _ in range(10_000)]
    for clock in clocks:
        wheel.schedule(clock, 1015)
        for _ in range(3):
            wheel.schedule(clock, 1030)  # activity: later than what is asked for already
    assert loop.armed == 1
    loop.run_until(1014.9)
    assert loop.wakeups == 0
    loop.run_until(1016)
    assert loop.wakeups == 1
    assert all(len(clock.calls) == 1 for clock in clocks)


def test_one_timer_at_a_time(loop: FakeLoop) -> None:
    wheel = wheel_on(loop)
    for when in (1009, 1005, 1007, 1001, 1003):
        wheel.schedule(Clock(), when)
        assert len(loop.pending()) == 1
    assert loop.pending()[0].when == 1001
    loop.run_until(1001)
    assert [timer.when for timer in loop.pending()] == [1003]


def test_cancelled_is_not_called_and_may_be_scheduled_again(loop: FakeLoop) -> None:
    wheel, clock, other = wheel_on(loop), Clock(), Clock()
    wheel.cancel(clock)  # not scheduled: nothing
    wheel.schedule(clock, 1001)
    wheel.schedule(other, 1001)
    wheel.cancel(clock)
    wheel.cancel(clock)
    loop.run_until(1002)
    assert (clock.calls, len(other.calls)) == ([], 1)
    wheel.schedule(clock, 1003)
    loop.run_until(1004)
    assert clock.calls == [1003]


def test_schedule_and_cancel_over_and_over_leaves_nothing_behind(loop: FakeLoop) -> None:
    wheel = wheel_on(loop)
    for _ in range(1000):
        clock = Clock()
        wheel.schedule(clock, 1005)
        wheel.cancel(clock)
    assert loop.armed == 1
    gone = weakref.ref(clock)
    del clock
    gc.collect()
    assert gone() is None
    loop.run_until(1010)
    assert loop.wakeups == 1
    assert not loop.pending()


def test_an_entry_may_cancel_another_of_its_slot(loop: FakeLoop) -> None:
    wheel = wheel_on(loop)
    pair: list[Clock] = []

    def cancel_both(now: float) -> None:
        for clock in pair:
            wheel.cancel(clock)

    pair += [Clock(cancel_both), Clock(cancel_both)]
    for clock in pair:
        wheel.schedule(clock, 1001)
    loop.run_until(1002)
    assert sorted(len(clock.calls) for clock in pair) == [0, 1]


@pytest.mark.parametrize("asked", [0.0, -5.0, 999.0, 1001.0, 1001.05])
def test_a_time_in_the_past_is_the_next_slot_and_never_this_one(loop: FakeLoop, asked: float) -> None:
    wheel = wheel_on(loop)
    left = [3]

    def again(now: float) -> float | None:
        left[0] -= 1
        return asked if left[0] else None

    clock = Clock(again)
    wheel.schedule(clock, 1001)
    assert clock.calls == []
    loop.run_until(1002)
    assert clock.calls == pytest.approx([1001, 1001.05, 1001.10])


def test_a_deadline_in_the_past_from_outside_is_called_soon(loop: FakeLoop) -> None:
    wheel, clock = wheel_on(loop), Clock()
    wheel.schedule(clock, 1.0)
    assert clock.calls == []
    loop.run_until(1000.05)
    assert len(clock.calls) == 1


def test_after_a_lag_each_entry_is_called_once(loop: FakeLoop) -> None:
    wheel = wheel_on(loop)
    eager = Clock(lambda now: 1000.0 if now < 1006.01 else None)
    late = Clock()
    wheel.schedule(eager, 1001)
    wheel.schedule(late, 1003)
    loop.run_until(1001, lag=5.0)
    assert (eager.calls, late.calls) == ([1006], [1006])
    loop.run_until(1007)
    assert len(eager.calls) == 2


@pytest.mark.parametrize("resolution", [0.007, 0.01, 0.05])
def test_no_slot_is_called_twice(resolution: float) -> None:
    """Wherever the division of a time into slots is rounded the wrong way."""
    loop = FakeLoop(0.0)
    clock = Clock(lambda now: 0.0 if len(clock.calls) < 3000 else None)
    wheel_on(loop, resolution).schedule(clock, 0.0)
    loop.run_until(3010 * resolution)
    assert len(clock.calls) == 3000
    assert all(later > earlier for earlier, later in pairwise(clock.calls))


def test_slots_that_were_emptied_do_not_wake_the_loop(loop: FakeLoop) -> None:
    wheel = wheel_on(loop)
    clocks = [Clock() for _ in range(100)]
    for n, clock in enumerate(clocks):
        wheel.schedule(clock, 1001 + n)
    for clock in clocks[1:-1]:
        wheel.cancel(clock)
    loop.run_until(1200)
    assert loop.wakeups == 2
    assert len(clocks[-1].calls) == 1


def test_infinity_is_never(loop: FakeLoop) -> None:
    wheel, clock = wheel_on(loop), Clock(lambda now: math.inf)
    wheel.schedule(clock, math.inf)
    assert clock.wheel_slot is None
    wheel.schedule(clock, 1001)
    loop.run_until(2000)
    assert clock.calls == [1001]


@pytest.mark.parametrize("fault", [RuntimeError("clock"), None])
def test_a_broken_entry_is_reported_and_dropped_and_the_others_go_on(loop: FakeLoop, fault: Exception | None) -> None:
    wheel = wheel_on(loop)

    def fail(now: float) -> float:
        wheel.schedule(broken, now + 1)
        if fault is not None:
            raise fault
        return math.nan

    broken, before, after = Clock(fail), Clock(lambda now: now + 1), Clock()
    for clock in (before, broken, after):
        wheel.schedule(clock, 1001)
    loop.run_until(1002.5)
    assert [len(clock.calls) for clock in (before, broken, after)] == [2, 1, 1]
    assert [context["entry"] for context in loop.faults] == [broken]
    assert fault is None or loop.faults[0]["exception"] is fault
    assert broken.wheel_slot is None


def test_an_interrupt_goes_through_and_the_wheel_still_turns(loop: FakeLoop) -> None:
    wheel = wheel_on(loop)

    def interrupt(now: float) -> None:
        raise KeyboardInterrupt

    clocks = [Clock(), Clock(interrupt), Clock()]
    for clock in clocks:
        wheel.schedule(clock, 1001)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until(1002)
    loop.run_until(1002)
    assert [len(clock.calls) for clock in clocks] == [1, 1, 1]


def test_close_forgets_all(loop: FakeLoop) -> None:
    wheel = wheel_on(loop)
    closer, clock, late = Clock(lambda now: wheel.close()), Clock(), Clock()
    wheel.schedule(clock, 1001)
    wheel.schedule(closer, 1001)  # the last one in is called first
    wheel.schedule(late, 1005)
    loop.run_until(1010)
    assert (len(closer.calls), clock.calls, late.calls) == (1, [], [])
    assert (clock.wheel_slot, late.wheel_slot) == (None, None)
    wheel.schedule(clock, 1011)
    wheel.cancel(clock)
    wheel.close()
    assert not loop.pending()


def test_an_entry_need_not_be_hashable(loop: FakeLoop) -> None:
    class Plain(Clock):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    wheel, clocks = wheel_on(loop), [Plain(), Plain()]
    for clock in clocks:
        wheel.schedule(clock, 1001)
    loop.run_until(1002)
    assert [len(clock.calls) for clock in clocks] == [1, 1]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_on_a_real_loop(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Twenty clocks of 5 to 80 ms, five times each; wake-ups stay near one a slot (no spinning)."""
    wakeups = 0

    class Counting(TimerWheel):
        def _fire(self) -> None:
            nonlocal wakeups
            wakeups += 1
            super()._fire()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        wheel = Counting(loop, 0.01)
        asked: list[tuple[float, float]] = []

        class Periodic:
            wheel_slot: int | None = None

            def __init__(self, period: float) -> None:
                self.period, self.left = period, 5
                self.due = wheel.time() + period
                wheel.schedule(self, self.due)

            def on_tick(self, now: float) -> float | None:
                asked.append((self.due, now))
                self.left -= 1
                self.due = now + self.period
                return self.due if self.left else None

        clocks = [Periodic(0.004 * n + 0.005) for n in range(20)]
        await eventually(lambda: len(asked) == 100)
        assert all(clock.left == 0 for clock in clocks)
        assert all(due <= now for due, now in asked)
        wheel.close()

    loop = new_loop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    assert wakeups <= 150
