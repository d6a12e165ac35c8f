"""Admission: the limit, draining, and waiting for the last stream."""

from __future__ import annotations

import asyncio

import pytest

from sse_proxy.errors import AdmissionRefused, FailureCode
from sse_proxy.server.admission import Admission


def refusal(admission: Admission) -> AdmissionRefused:
    with pytest.raises(AdmissionRefused) as refused:
        admission.acquire()
    return refused.value


def test_beyond_the_limit_a_stream_is_refused_until_one_ends() -> None:
    admission = Admission(2)
    first, second = admission.acquire(), admission.acquire()
    assert refusal(admission).code is FailureCode.OVERLOADED
    assert refusal(admission).retry_after_s >= 1
    first.release()
    third = admission.acquire()
    assert admission.active == 2
    second.release()
    third.release()
    assert admission.active == 0


def test_a_lease_released_twice_counts_once() -> None:
    admission = Admission(3)
    lease, other = admission.acquire(), admission.acquire()
    lease.release()
    lease.release()
    assert admission.active == 1
    other.release()
    assert admission.active == 0


def test_a_lease_is_released_when_its_block_fails() -> None:
    admission = Admission(1)
    inside: list[int] = []

    def fail() -> None:
        with admission.acquire():
            inside.append(admission.active)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert inside == [1]
    assert admission.active == 0


def test_draining_refuses_new_streams_and_keeps_the_running_ones() -> None:
    admission = Admission(5)
    lease = admission.acquire()
    admission.drain()
    assert admission.draining
    assert refusal(admission).code is FailureCode.PROXY_DRAINING
    assert admission.active == 1
    lease.release()
    assert refusal(admission).code is FailureCode.PROXY_DRAINING


def test_a_smaller_limit_ends_no_stream_and_a_larger_one_admits_more() -> None:
    admission = Admission(2)
    leases = [admission.acquire(), admission.acquire()]
    admission.resize(1)
    assert admission.active == 2
    leases.pop().release()
    assert refusal(admission).code is FailureCode.OVERLOADED
    admission.resize(3)
    leases += [admission.acquire(), admission.acquire()]
    assert refusal(admission).code is FailureCode.OVERLOADED


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_misuse(limit: int) -> None:
    with pytest.raises(ValueError, match="max_streams"):
        Admission(limit)
    admission = Admission(1)
    with pytest.raises(ValueError, match="max_streams"):
        admission.resize(limit)
    assert admission.max_streams == 1


async def test_waiting_ends_with_the_last_stream_and_not_before() -> None:
    admission = Admission(2)
    first, last = admission.acquire(), admission.acquire()
    waiter = asyncio.create_task(admission.wait_empty(30))
    first.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiter.done()
    last.release()
    assert await asyncio.wait_for(waiter, 5) is True


async def test_waiting_gives_up_when_the_time_is_over() -> None:
    admission = Admission(1)
    admission.acquire()
    assert await admission.wait_empty(0.01) is False


async def test_waiting_for_nothing_ends_at_once() -> None:
    admission = Admission(1)
    assert await admission.wait_empty(None) is True
    admission.acquire().release()
    assert await admission.wait_empty(None) is True


async def test_a_cancelled_waiter_is_cancelled() -> None:
    admission = Admission(1)
    admission.acquire()
    waiter = asyncio.create_task(admission.wait_empty(30))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
