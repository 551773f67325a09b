"""A hook that hangs takes a few threads of the worker, and no more."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fleet.core.clock import Deadline
from fleet.hooks.base import Answer, FewAtOnce, Reply

YES = Answer(Reply.YES, receipt="")


class Hanging:
    name, deadline_s = "wipe", 60.0

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Semaphore(0), threading.Event()

    def ask(self, question: Mapping[str, Any], key: str, deadline: Deadline) -> Answer:
        self.asked.release()
        assert self.go_on.wait(60.0)
        return YES


class Broken(Hanging):
    def ask(self, question: Mapping[str, Any], key: str, deadline: Deadline) -> Answer:
        raise RuntimeError("a fault of ours")


def test_whoever_comes_while_it_is_asked_comes_again_later() -> None:
    inner = Hanging()
    hook = FewAtOnce(inner, 2)

    def ask() -> Answer:
        return hook.ask({}, "k", Deadline.after(60.0))

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        for _ in asking:
            assert inner.asked.acquire(timeout=60.0)
        assert ask() == Answer(Reply.NONE, "it is being asked for other machines")
        inner.go_on.set()
        assert [each.result(60.0) for each in asking] == [YES, YES]
    assert ask() == YES


def test_a_fault_leaves_its_place_free() -> None:
    hook = FewAtOnce(Broken(), 1)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            hook.ask({}, "k", Deadline.after(60.0))
