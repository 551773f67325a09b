"""What a site is asked before a test VM is placed: one question, four possible answers.

A hook is asked again and again, with the same key, until it says yes or no. So it starts its work at the first call, says
`not yet` while that goes on, and only looks at it after that."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, Protocol

from fleet.core.clock import Deadline
from fleet.remote.printable import printable

ANSWER_LIMIT_BYTES = 16 << 10
CALL_S = 10.0
"""One call, from start to end: well within the engine's lease of 20 s."""


class Reply(StrEnum):
    YES = "yes"
    NOT_YET = "not yet"
    NO = "no"
    NONE = "no answer"  # not reached, too slow, broken off: it may have been heard nevertheless


@dataclass(frozen=True)
class Answer:
    """`words` are for people: one line, printable. `receipt` is what a `yes` brings: a JSON value, or text."""

    reply: Reply
    words: str = ""
    receipt: Any = None


class Hook(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def deadline_s(self) -> float:
        """From the first question to the last."""

    def ask(self, question: Mapping[str, Any], key: str, deadline: Deadline) -> Answer:
        """Put the question once. The same `key` is the same question. Whatever goes wrong is an answer, never an error."""


class FewAtOnce:
    """A hook that this process asks for a few machines at a time: one that hangs must not take every thread of the worker,
    while test VMs wait to be looked at."""

    def __init__(self, hook: Hook, at_once: int) -> None:
        self.name, self.deadline_s = hook.name, hook.deadline_s
        self._hook, self._free = hook, threading.BoundedSemaphore(at_once)

    def ask(self, question: Mapping[str, Any], key: str, deadline: Deadline) -> Answer:
        if not self._free.acquire(blocking=False):
            return Answer(Reply.NONE, "it is being asked for other machines")
        try:
            return self._hook.ask(question, key, deadline)
        finally:
            self._free.release()


def yes(content: bytes) -> Answer:
    """A `yes` with its receipt. What can be neither kept nor shown is none: a receipt is there to be shown later."""
    if len(content) > ANSWER_LIMIT_BYTES:
        return Answer(Reply.NO, f"its receipt has more than {ANSWER_LIMIT_BYTES >> 10} KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return Answer(Reply.NO, "its receipt is not UTF-8")
    try:
        receipt = json.loads(text, parse_constant=_refuse)
        json.dumps(receipt, ensure_ascii=False, allow_nan=False).encode()  # lone surrogates, numbers beyond a double
        readable = _shallow(receipt)
    except (ValueError, RecursionError):
        readable = False
    return Answer(Reply.YES, receipt=receipt if readable else printable(text, ANSWER_LIMIT_BYTES))


def _shallow(value: Any, levels: int = 32) -> bool:
    """Whoever writes it as part of a larger document must not run out of stack."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_shallow(item, levels - 1) for item in inner)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
