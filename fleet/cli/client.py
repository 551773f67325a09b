"""The API as the commands see it: JSON in, JSON out, one exception. Writes carry an idempotency key, so that a request
whose answer was lost is simply sent again."""

import json
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import urlsplit

from fleet.cli import tls
from fleet.cli.exits import CommandError, Exit, of_problem
from fleet.cli.output import printable
from fleet.profile import Profile

# httpx loads a command line of its own where it can (click, rich, pygments): two fifths of its load time, for nothing here
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
import httpx  # noqa: E402

Json = dict[str, Any]
Params = Mapping[str, str | int | None]

_ANSWER_LIMIT_BYTES = 64 << 20
_PAGE = 500
_PAUSES_S = (0.2, 0.5, 1.0)
"""Between tries: long enough for a service that restarts its listener, short enough for somebody who mistyped a port."""

_ENOUGH_S = 20.0
"""After this nothing is tried again: the service has waited for its database by then, and its answer says so."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Client:
    """One service. Raises CommandError, whose status is the exit status; closed by `with`."""

    def __init__(self, profile: Profile, timeout_s: float = 45.0, answer_s: float = 300.0) -> None:
        """`timeout_s` for each piece of an answer, `answer_s` for all of it."""
        self.url, self._answer_s = profile.url, answer_s
        try:
            parts = urlsplit(self.url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise CommandError(
                f"--url: {self.url!r} is not an address; it looks like http://127.0.0.1:8470", Exit.USAGE
            )
        if "@" in parts.netloc:
            raise CommandError(
                "--url: has a login in it; the service takes a token: --token or FLEET_TOKEN", Exit.USAGE
            )
        headers = {"Accept": "application/json"}
        if profile.token is not None:
            if not (profile.token.isascii() and profile.token.isprintable()):
                raise CommandError("--token: has characters that no token has", Exit.USAGE)
            headers["Authorization"] = f"Bearer {profile.token}"
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(timeout_s, connect=5.0),
                # loading certificates that nobody will show costs 30 ms
                verify=tls.trusting(profile.ca) if parts.scheme == "https" else False,
                trust_env=parts.hostname not in _LOOPBACK,  # a proxy has no way to this machine
            )
        except httpx.InvalidURL as exc:
            raise CommandError(f"--url: {self.url!r} is not an address: {exc}", Exit.USAGE) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    def get(self, path: str, params: Params | None = None) -> Json:
        return self._json(self._send("GET", path, params=params))

    def text(self, path: str, params: Params | None = None) -> str:
        return self._send("GET", path, params=params).decode(errors="replace")

    def download(self, path: str, to: IO[bytes]) -> None:
        """An answer of any length, straight into a file. Raises OSError where it cannot be written. Not tried again."""
        try:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    self._judged(response.status_code, response.read())
                for chunk in response.iter_raw():
                    to.write(chunk)
        except httpx.TransportError as exc:
            if (refused := tls.refusal(exc, self.url)) is not None:
                raise refused from exc
            raise CommandError(f"{self.url} does not answer: {_said(exc)}", Exit.NOT_REACHED) from exc

    def post(self, path: str, body: Mapping[str, Any] | None = None, key: str | None = None) -> Json:
        """`key` is the idempotency key; one is made where the caller has no better."""
        return self._json(self._send("POST", path, body=body or {}, key=key or str(uuid.uuid4())))

    def rows(
        self, path: str, params: Params | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Json:
        """`{items, next}`: everything, or one page of `limit` rows from `cursor` on."""
        asked = {**(params or {}), "limit": limit or _PAGE, "cursor": cursor}
        if limit is not None:
            return self._page(path, asked)
        return {"items": [row for page in self.pages(path, asked) for row in page["items"]], "next": None}

    def pages(self, path: str, params: Params | None = None) -> Iterator[Json]:
        """A long list page by page, so that it never is in memory as a whole."""
        page = self._page(path, {"limit": _PAGE, **(params or {})})
        yield page
        while page.get("next"):
            page = self._page(path, {"limit": _PAGE, **(params or {}), "cursor": str(page["next"])})
            yield page

    def _page(self, path: str, params: Params) -> Json:
        page = self.get(path, params)
        items = page.get("items")
        if not isinstance(items, list) or not all(isinstance(row, dict) for row in items):
            raise self._not_ours("its answer is not a list")
        return page

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> bytes:
        try:
            request = self._http.build_request(
                method,
                path,
                params={k: v for k, v in (params or {}).items() if v is not None},
                json=body,
                headers={"Idempotency-Key": key} if key else None,
            )
        except UnicodeEncodeError as exc:  # bytes of the command line that are not in its encoding
            raise CommandError(f"{exc.object!a} is not UTF-8 text", Exit.USAGE) from exc
        started = time.monotonic()
        unsure = False  # a write was sent and nobody said what became of it
        for pause_s in (*_PAUSES_S, None):
            try:
                status, raw = self._once(request)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
                if (refused := tls.refusal(exc, self.url)) is not None:
                    raise refused from exc
                lost: httpx.HTTPError = exc
            except httpx.TransportError as exc:
                lost, unsure = exc, unsure or method != "GET"
            else:
                if status != httpx.codes.SERVICE_UNAVAILABLE or pause_s is None or _is_enough(started):
                    return self._judged(status, raw)
            if pause_s is None or _is_enough(started):
                break
            time.sleep(pause_s)
        if unsure:
            raise CommandError(
                f"{self.url} took the request and never answered ({_said(lost)}): it may have been done. Look before "
                f"doing it again; its idempotency key is {key}",
                Exit.NOT_SETTLED,
            ) from lost
        raise CommandError(
            f"{self.url} does not answer: {_said(lost)}. Is the service up (`fleet up`), and is the address right (--url)?",
            Exit.NOT_REACHED,
        ) from lost

    def _once(self, request: httpx.Request) -> tuple[int, bytes]:
        response = self._http.send(request, stream=True)
        try:
            raw, started = bytearray(), time.monotonic()
            for chunk in response.iter_bytes():
                raw += chunk
                if len(raw) > _ANSWER_LIMIT_BYTES:
                    raise self._not_ours(f"its answer has more than {_ANSWER_LIMIT_BYTES >> 20} MiB")
                if time.monotonic() - started > self._answer_s:
                    raise httpx.ReadTimeout(f"its answer has not ended in {self._answer_s:g} s")
            return response.status_code, bytes(raw)
        finally:
            response.close()

    def _judged(self, status: int, raw: bytes) -> bytes:
        if 200 <= status < 300:
            return raw
        try:
            problem = json.loads(raw)
        except ValueError:
            problem = None
        if not isinstance(problem, dict):
            if of_problem(status, None) is Exit.NOT_REACHED:  # a proxy in front of a service that is away
                said = f"{self.url}: what stands in front of the service answered {status}"
                raise CommandError(said, Exit.NOT_REACHED)
            raise self._not_ours(f"it answered {status} without a problem document")
        said = "\n".join(_sentences(problem, status))
        if status == httpx.codes.UNAUTHORIZED:
            said += " (the token comes from --token, FLEET_TOKEN or the profile)"
        raise CommandError(said, of_problem(status, problem.get("code")), problem)

    def _json(self, raw: bytes) -> Json:
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            raise self._not_ours("its answer is not JSON") from None
        if not isinstance(answer, dict):
            raise self._not_ours("its answer is not an object")
        return answer

    def _not_ours(self, why: str) -> CommandError:
        return CommandError(f"{self.url} is not this service, or of another version: {why}", Exit.INTERNAL)


def _said(lost: httpx.HTTPError) -> str:
    """The reason without its number and its full stop: it stands inside of a sentence."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(lost) or type(lost).__name__).rstrip(".")


def _is_enough(started: float) -> bool:
    return time.monotonic() - started > _ENOUGH_S


def _sentences(problem: Mapping[str, Any], status: int) -> Iterator[str]:
    detail = problem.get("detail") or problem.get("title") or f"the service answered {status}"
    field = problem.get("field")
    yield f"{field}: {detail}" if field and not str(detail).startswith(str(field)) else str(detail)
    errors = problem.get("errors")
    rows = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    for error in rows if len(rows) > 1 or "row" in (rows or [{}])[0] else []:  # a single one is in the detail
        row = [f"row {error['row']}"] if error.get("row") is not None else []
        said = (printable(error[k]) for k in ("name", "field", "detail") if error.get(k) is not None)  # a row, a line
        yield "  " + ": ".join([*row, *said])
