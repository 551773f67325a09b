"""Ctrl-C, SIGTERM and a closed terminal as exceptions of the main thread: the way out ends whatever was started."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """An orderly end was asked for. Not an Exception, so that nothing on the way takes it for an error."""


@contextmanager
def ending() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt (also where a shell started us with it ignored), the others end the block as if
    it were done. The first one is enough: more of them would only break the way out, which is bounded."""

    def end(number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        os.write(2, b"\nfleet: ending what was started; this takes some seconds\n")
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    before = {each: signal.signal(each, end) for each in SIGNALS if not (nohup and each == signal.SIGHUP)}
    try:
        yield
    except Terminated:
        pass
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
