"""TimerWheel: one timer for the clocks of all streams.

A stream has several clocks (keep-alive, idle, stall, write, hold), and nearly every byte moves one of them. With a
timer of its own that is 5 to 40 us of CPU for each event; here activity costs nothing: the stream only notes the time,
and when its slot comes round `on_tick` looks which clock is due and says when to look again.
"""

from __future__ import annotations

import asyncio
import math
from heapq import heappop, heappush
from typing import Protocol

__all__ = ["Clocked", "TimerWheel"]


class Clocked(Protocol):
    """What a wheel can call.

    Attributes:
        wheel_slot: None to begin with; the wheel's own from then on. Not None: the entry is scheduled.
    """

    wheel_slot: int | None

    def on_tick(self, now: float) -> float | None:
        """Do what is due at `now` (loop time, seconds); return when to be called next, None for never."""


class TimerWheel:
    """Call each entry at or after the time it asked for: never early, at most `resolution_s` and the loop's lag late.

    Time is cut into slots; a slot's entries are called together, at its end. Only the next slot that is not empty has
    a timer of the loop, so entries cost nothing between their deadlines. `schedule` and `cancel` are O(1), but for the
    first entry of a slot, whose number goes on a heap of integers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, resolution_s: float = 0.05) -> None:
        self._loop = loop
        # Slots per second, because n / 20.0 is exactly the float of its decimal and n * 0.05 is not: uvloop's clock
        # counts whole milliseconds, and a slot one ulp past its millisecond would spin until the next one.
        self._rate = 1.0 / resolution_s
        # A slot that cancel() emptied stays until its time: else the next schedule() would put it on the heap twice.
        self._slots: dict[int, dict[int, Clocked]] = {}
        self._order: list[int] = []
        self._first_open = 0  # slots below have been called: nothing can be put there any more
        self._armed: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._firing = self._closed = False

    def time(self) -> float:
        """Return the clock of all times here: the loop's, in seconds."""
        return self._loop.time()

    def schedule(self, entry: Clocked, when: float) -> None:
        """Have `entry.on_tick` called at or soon after `when`; does nothing where it is due earlier already.

        A time that has passed means as soon as possible, never inside this call; infinity means never.
        """
        if self._closed or when == math.inf:
            return
        slot = math.ceil(when * self._rate)
        if slot / self._rate < when:  # the product was rounded down
            slot += 1
        slot = max(slot, self._first_open)
        current = entry.wheel_slot
        if current is not None:
            if current <= slot:
                return
            self._slots[current].pop(id(entry), None)
        entries = self._slots.get(slot)
        if entries is None:
            entries = self._slots[slot] = {}
            heappush(self._order, slot)
        entries[id(entry)] = entry  # by identity: an entry need not be hashable
        entry.wheel_slot = slot
        if not self._firing and (self._armed is None or slot < self._armed):
            self._arm(slot)

    def cancel(self, entry: Clocked) -> None:
        """Forget `entry`, also one whose call is due in this very turn; does nothing where it is not scheduled."""
        if entry.wheel_slot is not None:
            self._slots[entry.wheel_slot].pop(id(entry), None)
            entry.wheel_slot = None

    def close(self) -> None:
        """Forget every entry; `schedule` does nothing from now on."""
        self._closed = True
        for entries in self._slots.values():
            for entry in entries.values():
                entry.wheel_slot = None
            entries.clear()
        self._slots.clear()
        self._order.clear()
        self._disarm()

    def _arm(self, slot: int) -> None:
        self._disarm()
        self._armed = slot
        self._timer = self._loop.call_at(slot / self._rate, self._fire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._armed = None

    def _fire(self) -> None:
        """Call the entries of every slot whose time has come, then arm the next slot that has any."""
        self._timer = self._armed = None
        now = self._loop.time()
        self._firing = True
        # After a lag several slots are due; what asks for a time in the past meanwhile comes after them all, once.
        self._first_open = max(self._first_open, math.floor(now * self._rate) + 1)
        try:
            # The loop may call a timer one tick of its clock early: such a slot is simply armed again.
            while self._order and (slot := self._order[0]) / self._rate <= now:
                self._first_open = max(self._first_open, slot + 1)
                self._call(slot, now)
                if self._closed:
                    return
                del self._slots[heappop(self._order)]
        finally:
            self._firing = False
            while self._order and not self._slots[self._order[0]]:
                del self._slots[heappop(self._order)]
            if self._order:
                self._arm(self._order[0])

    def _call(self, slot: int, now: float) -> None:
        entries = self._slots[slot]
        while entries:  # an entry may cancel, or bring forward, others of this slot
            _, entry = entries.popitem()
            entry.wheel_slot = None
            try:
                again = entry.on_tick(now)
                if again is not None:
                    self.schedule(entry, again)
            except Exception as exc:
                self.cancel(entry)
                self._loop.call_exception_handler(
                    {"message": "a stream's clock failed and was dropped", "exception": exc, "entry": entry}
                )
