"""What the shell is told: one exit status per outcome that a script acts on."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    DONE = 0  # done, or the verdict is passed
    FAILED = 1  # the verdict is failed, and nothing else
    USAGE = 2  # the command or its input is wrong
    NOT_SETTLED = 3  # aborted, not run, or sent and never confirmed
    REFUSED = 4  # unknown object, state, hold, role or token forbids it
    NOT_REACHED = 5  # no service at that address, or it cannot serve now
    INTERNAL = 70  # our fault
    INTERRUPTED = 130


BY_VERDICT: Mapping[str, Exit] = {"passed": Exit.DONE, "failed": Exit.FAILED, "aborted": Exit.NOT_SETTLED}

_BY_CODE: Mapping[str, Exit] = {
    "invalid-input": Exit.USAGE,
    "not-found": Exit.REFUSED,
    "refused": Exit.REFUSED,
    "illegal-move": Exit.REFUSED,
    "unauthenticated": Exit.REFUSED,
    "forbidden": Exit.REFUSED,
    "conflict": Exit.REFUSED,
    "store-busy": Exit.NOT_REACHED,
    "store-unconfirmed": Exit.NOT_SETTLED,
}
_BY_STATUS: Mapping[int, Exit] = {
    400: Exit.USAGE,
    413: Exit.USAGE,
    415: Exit.USAGE,
    422: Exit.USAGE,
    429: Exit.NOT_REACHED,
    502: Exit.NOT_REACHED,
    503: Exit.NOT_REACHED,
    504: Exit.NOT_REACHED,
}


def of_problem(status: int, code: object) -> Exit:
    """The exit status of an answer that is not a success: by problem code, else by HTTP status."""
    if isinstance(code, str) and code in _BY_CODE:
        return _BY_CODE[code]
    return _BY_STATUS.get(status, Exit.REFUSED if 400 <= status < 500 else Exit.INTERNAL)


class CommandError(Exception):
    """Ends the command: `message` is for the person, `document` is what `--json` prints in place of an answer."""

    def __init__(self, message: str, status: Exit, document: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.document = document or {"title": message, "code": status.name.lower().replace("_", "-")}
