"""How often one client may ask. It protects the others from one that runs wild; each API process counts for itself."""

import hashlib
import ipaddress
import math
import time
from collections import OrderedDict
from dataclasses import dataclass

import structlog
from limits import RateLimitItem, RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from fleet.api.problem import Unreadable

log = structlog.get_logger(__name__)

_KNOWN = 10_000
_TOLD = RateLimitItemPerMinute(1, namespace="told")


@dataclass(frozen=True)
class Rates:
    """Requests a minute; a burst may spend all of them at once."""

    per_token: int = 12_000
    per_address: int = 24_000
    failed_logins: int = 30


class TooMany(Unreadable):
    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(429, "rate-limited", message, headers={"Retry-After": str(retry_after_s)})


class Limits:
    """Counts in this process's memory, by token and by where requests come from. Used from one event loop."""

    def __init__(self, rates: Rates = Rates()) -> None:
        self._token = RateLimitItemPerMinute(rates.per_token, namespace="token")
        self._address = RateLimitItemPerMinute(rates.per_address, namespace="address")
        self._failed = RateLimitItemPerMinute(rates.failed_logins, namespace="failed")
        self._windows = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._known: OrderedDict[str, None] = OrderedDict()

    async def take(self, source: str | None, token: str | None) -> None:
        """One request more. Raises TooMany. After too many failed logins an address is heard only with tokens that were
        good here before: whoever guesses behind a shared address locks nobody out."""
        where, who = neighbourhood(source), _digest(token)
        if who not in self._known and not await self._windows.test(self._failed, where):
            raise await self._refused(self._failed, where, f"{self._failed.amount} failed logins from this address")
        if not await self._windows.hit(self._address, where):
            raise await self._refused(self._address, where, f"{self._address.amount} requests from this address")
        if token is not None and not await self._windows.hit(self._token, who):
            raise await self._refused(self._token, who, f"{self._token.amount} requests with this token")

    async def failed(self, source: str | None) -> None:
        """A token was not good."""
        await self._windows.hit(self._failed, neighbourhood(source))

    def good(self, token: str | None) -> None:
        who = _digest(token)
        self._known[who] = None
        self._known.move_to_end(who)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    async def _refused(self, limit: RateLimitItem, key: str, what: str) -> TooMany:
        if await self._windows.hit(_TOLD, limit.namespace, key):  # a line a minute: the log is not there to be filled
            log.warning("api.rate_limited", limit=limit.namespace, of=key if limit is not self._token else key[:8])
        window = await self._windows.get_window_stats(limit, key)
        wait_s = max(1, math.ceil(window.reset_time - time.time()))
        return TooMany(f"{what} in a minute are the most that the service takes; try again in {wait_s} s", wait_s)


def neighbourhood(source: str | None) -> str:
    """What counts as one address: of IPv6 the first 64 bits, since a single client has all that follow."""
    try:
        address = ipaddress.ip_address((source or "").partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _digest(token: str | None) -> str:
    return hashlib.sha256((token or "").encode(errors="surrogateescape")).hexdigest()
