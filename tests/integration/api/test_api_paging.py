"""Pages stay right while rows come and go."""

from collections.abc import Callable
from typing import Any

import pytest

from fleet.store import attention, audit, tokens
from fleet.store.audit import By


def pages(api: Any, path: str, limit: int, between: Callable[[], None] = lambda: None) -> list[list[Any]]:
    found, cursor = [], None
    while True:
        page = api.get(f"{path}?limit={limit}" + (f"&cursor={cursor}" if cursor else ""))
        found.append(page["items"])
        cursor = page["next"]
        if cursor is None:
            return found
        between()


def fill(api: Any, noun: str, count: int) -> None:
    if noun == "machines":
        rows = [{"name": f"gpu-{n:03}", "sku": "x", "state": "available"} for n in range(count)]
        api.post("/v1/machines/import", {"machines": rows}, 201)
    elif noun == "validations":
        for n in range(count):
            api.add(f"gpu-{n:03}", "vacated")
            api.post("/v1/validations", {"machine": f"gpu-{n:03}"}, 202)
    else:
        with api.db.begin() as session:
            for n in range(count):
                if noun == "attention":
                    attention.need(session, "k", f"s{n}", machine=None, reason="r", next_step="n")
                elif noun == "tokens":
                    tokens.create(session, f"t{n}", "viewer")
                else:
                    audit.write(session, By("test"), "act")


@pytest.mark.parametrize("noun", ["machines", "validations", "attention", "tokens", "audit"])
def test_every_row_is_on_one_page(api_on_both: Any, noun: str) -> None:
    fill(api_on_both, noun, 7)
    whole = api_on_both.get(f"/v1/{noun}?limit=500")
    assert whole["next"] is None
    assert len(whole["items"]) >= 7
    parts = pages(api_on_both, f"/v1/{noun}", 3)
    assert [row["id"] for part in parts for row in part] == [row["id"] for row in whole["items"]]
    assert {len(part) for part in parts[:-1]} == {3}


def test_what_comes_and_goes_meanwhile_moves_nobody(api: Any) -> None:
    fill(api, "machines", 9)
    turns = iter(range(100))

    def between() -> None:
        api.add(f"aaa-{next(turns)}")  # sorts before everything that was read

    parts = pages(api, "/v1/machines", 2, between)
    assert [row["id"] for part in parts for row in part] == [f"gpu-{n:03}" for n in range(9)]


def test_newer_audit_entries_are_not_on_later_pages(api: Any) -> None:
    fill(api, "audit", 9)
    newest = api.audit()[0]["id"]
    parts = pages(api, "/v1/audit", 2, lambda: fill(api, "audit", 5))
    ids = [row["id"] for part in parts for row in part]
    assert ids == sorted(ids, reverse=True)
    assert ids[0] == newest
    assert len(set(ids)) == len(ids) == newest


def test_an_exactly_full_last_page_has_no_next(api: Any) -> None:
    fill(api, "machines", 4)
    assert [len(part) for part in pages(api, "/v1/machines", 2)] == [2, 2]


def test_the_default_page_is_bounded(api: Any) -> None:
    fill(api, "machines", 120)
    assert len(api.get("/v1/machines")["items"]) == 100


def test_lists_that_no_table_holds_have_pages_too(api: Any) -> None:
    parts = pages(api, "/v1/lab/machines", 1)
    assert [[row["id"] for row in part] for part in parts] == [["lab-01"], ["lab-02"]]
    assert api.get("/v1/lab/faults?cursor=abc", 422)["field"] == "cursor"
