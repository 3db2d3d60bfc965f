"""Ctrl-C that comes at a bad moment, made to come then."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future

import pytest

from advisorchain.cli.interrupts import Interrupts

posix = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are sent to threads")


def interrupt_elsewhere() -> None:
    """As when it arrives just before the main thread blocks: Python has noted it, and no call of that thread ends."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@posix
def test_a_read_that_did_not_feel_the_signal_ends() -> None:
    reading, writing = os.pipe()
    rescue = threading.Timer(20, os.write, (writing, b"nobody heard"))
    sender = threading.Timer(0.05, interrupt_elsewhere)
    with Interrupts() as interrupts:
        rescue.start()
        sender.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                with interrupts.raised():
                    os.read(reading, 100)
        finally:
            rescue.cancel()
            rescue.join()
            sender.join()
    os.close(reading)
    os.close(writing)


def test_one_that_came_while_nobody_read_is_raised_at_the_next_read() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            with interrupts.raised():
                pytest.fail("it was lost")
        with interrupts.raised():
            pass  # once is enough


def test_one_that_is_forgotten_is_gone() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.forget()
        assert not interrupts.forget()


def test_work_is_stopped_by_one_that_came_before_it() -> None:
    work: Future[str] = Future()
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.wait(work, lambda: work.set_result("stopped")) == "stopped"


@posix
def test_work_is_stopped_by_one_that_no_call_felt() -> None:
    work: Future[str] = Future()
    rescue = threading.Timer(20, work.set_result, ("nobody heard",))
    sender = threading.Timer(0.05, interrupt_elsewhere)
    with Interrupts() as interrupts:
        rescue.start()
        sender.start()
        assert interrupts.wait(work, lambda: work.set_result("stopped")) == "stopped"
    rescue.cancel()
    rescue.join()
    sender.join()


def test_an_error_of_the_work_is_its_own() -> None:
    work: Future[str] = Future()
    work.set_exception(ValueError("mine"))
    with Interrupts() as interrupts, pytest.raises(ValueError, match="mine"):
        interrupts.wait(work, work.cancel)


def test_all_is_as_it_was_afterwards() -> None:
    numbers = [signal.SIGINT, getattr(signal, "SIGURG", signal.SIGINT)]
    before, threads = [signal.getsignal(number) for number in numbers], set(threading.enumerate())
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in numbers] == before
    assert set(threading.enumerate()) <= threads  # one of another test may have ended meanwhile
    former = signal.set_wakeup_fd(-1)
    assert former == -1
