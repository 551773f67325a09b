"""Every list of the API with every filter, alone and in pairs, over HTTP on the database of a large provider (`crowded`): 10,000
machines, 100,000 validations, 700,000 audit entries. Which lists and filters there are comes from the OpenAPI document, so that
none is forgotten; one that this knows no value for ends it. Goal: 100 ms at the median.

    python -m tests.bench.bench_lists [--times N] [--plans]      `--plans`: how PostgreSQL runs the slow ones
"""

import argparse
import itertools
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import sqlalchemy as sa
import structlog

from fleet.app import web
from fleet.service.services import Services
from fleet.service.times import stamp
from fleet.settings import load
from fleet.store.database import Database
from fleet.store.evidence import EvidenceFolder
from fleet.store.upgrade import upgrade
from playbooks.loader import SHIPPED, Library
from tests import postgres
from tests.bench import crowded
from tests.integration.cli import web_server

GOAL_S = 0.1
_RATES = {"rates": {"per_token": 10_000_000, "per_address": 10_000_000}}
_PAGING = {"limit", "cursor"}
_IDS = {"validation": "val-00050000"}


def values(name: str, schema: Mapping[str, Any], document: Mapping[str, Any], now: float) -> Sequence[str]:
    """What to ask of one filter: a common and a rare case at least."""
    choices = [_resolved(each, document) for each in schema.get("anyOf", [schema])]
    if found := [
        str(value) for each in choices for value in each.get("enum", [each["const"]] if "const" in each else [])
    ]:
        return found
    if any(each.get("type") == "boolean" for each in choices):
        return ["true", "false"]
    samples: dict[str, Sequence[str]] = {
        "machine": (crowded.BUSY, crowded.QUIET),
        "kind": ("machine late", "tenant appeared"),
        "actor": ("service:revalidation", "anna", "bert"),
        "action": ("machine.passed", "machine.", "machine.hold", "token.", "token.revoked"),
        "since": (stamp(now - 86400.0), stamp(now - 2 * crowded.YEAR_S)),
        "until": (stamp(now - 86400.0), stamp(now - 2 * crowded.YEAR_S)),
    }
    if name not in samples:
        raise SystemExit(f"no value is known here for the filter {name!r}: add one to this benchmark")
    return samples[name]


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    found: Mapping[str, Any] = document["components"]["schemas"][reference.rpartition("/")[2]] if reference else schema
    return found


def lists(document: Mapping[str, Any], now: float) -> Iterator[tuple[str, Mapping[str, Sequence[str]]]]:
    """Paths of lists, with the filters that each takes and what to ask of them."""
    for path, operations in document["paths"].items():
        parameters = operations.get("get", {}).get("parameters", [])
        names = {each["name"] for each in parameters if each["in"] == "query"}
        if not names >= _PAGING or path.startswith("/v1/lab"):  # the simulated rack's lists are not the database's
            continue
        filters = {
            each["name"]: values(each["name"], each["schema"], document, now)
            for each in parameters
            if each["in"] == "query" and each["name"] not in _PAGING
        }
        yield path.format(**_IDS), filters


def questions(filters: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    yield {}
    for count in (1, 2):
        for names in itertools.combinations(filters, count):
            for chosen in itertools.product(*(filters[name] for name in names)):
                yield dict(zip(names, chosen, strict=True))


def median_s(ask: Callable[[str], Any], address: str, times: int) -> float:
    took = []
    for _ in range(times + 1):
        started = time.perf_counter()
        ask(address)
        took.append(time.perf_counter() - started)
    return statistics.median(took[1:])


def plans(db: Database, ask: Callable[[str], Any], address: str) -> Iterator[str]:
    """What PostgreSQL does for one request, where it reads many rows."""
    said: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> None:
        if statement.startswith("SELECT"):
            said.append((statement, parameters))

    sa.event.listen(db.engine, "before_cursor_execute", note)
    ask(address)
    sa.event.remove(db.engine, "before_cursor_execute", note)
    with db.engine.connect() as connection:
        for statement, parameters in said:
            lines = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, COSTS OFF) {statement}", parameters).scalars().all()
            if float(lines[-1].split()[2]) > 1000 * GOAL_S / 5:
                yield "\n".join(f"      {line}" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_lists")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--plans", action="store_true")
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    binaries = postgres.find_binaries()
    if binaries is None:
        raise SystemExit("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lists-")))
        url = stack.enter_context(postgres.server(binaries))
        db = Database(url)
        stack.callback(db.close)
        upgrade(db)
        crowded.fill(db)
        server = stack.enter_context(web_server.running(url, folder, _RATES))
        client = stack.enter_context(
            httpx.Client(
                base_url=f"http://127.0.0.1:{server.port}", headers={"Authorization": server.bearer}, timeout=60
            )
        )

        def ask(address: str) -> Any:
            answer = client.get(address)
            assert answer.status_code == 200, (address, answer.text)
            return answer.json()

        services = Services(db, EvidenceFolder(folder / "evidence"), Library([SHIPPED]))
        document = web.api(load(None, _RATES), services).openapi()
        floor = median_s(client.get, "/readyz", 20)
        print(f"a request that reads one value: {floor * 1000:.1f} ms; the goal is {GOAL_S * 1000:.0f} ms")
        slow = 0
        for path, filters in lists(document, db.now()):
            found = []
            for question in questions(filters):
                address = f"{path}?{urlencode(question)}"
                found.append((median_s(ask, address, asked.times), address))
                if (after := ask(address)["next"]) is not None:
                    further = f"{path}?{urlencode({**question, 'cursor': after})}"
                    found.append((median_s(ask, further, asked.times), further))
            found.sort(reverse=True)
            middle = statistics.median(took for took, _ in found)
            print(
                f"{path}: {len(found)} questions, {middle / GOAL_S:.2f} of the goal at the median, "
                f"{found[0][0] / GOAL_S:.2f} at most: {found[0][1]}",
                flush=True,
            )
            for took, address in found:
                if took > GOAL_S or (asked.plans and took > GOAL_S / 2):
                    slow += took > GOAL_S
                    print(f"  {took / GOAL_S:.2f} of the goal: {address}")
                    if asked.plans:
                        print(*plans(server.db, ask, address), sep="\n", flush=True)
        for path in ("/metrics", "/healthz"):
            took = median_s(client.get, path, asked.times)
            print(f"{path}: {took / GOAL_S:.2f} of the goal")
        print(f"{slow} questions slower than the goal")
    sys.exit(slow > 0)


if __name__ == "__main__":
    main()
