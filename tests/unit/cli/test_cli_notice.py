"""`fleet notice`."""

from typing import Any

NOTICE = {
    "id": "ntc-7",
    "created_at": "2026-11-30T08:11:43.250Z",
    "destination": "scheduler",
    "kind": "pool.withdrawn",
    "machine": "gpu-1",
    "version": 4,
    "state": "pending",
    "last_error": "HTTP 503",
}


def test_the_list_says_what_waits_and_why(fleet: Any, service: Any) -> None:
    service.on("GET", "/v1/notices", {"items": [NOTICE], "next": None})
    ran = fleet("notice", "list", "--machine", "gpu-1", "--state", "pending", "--to", "scheduler", "--limit", "7")
    asked = {"machine": ["gpu-1"], "state": ["pending"], "destination": ["scheduler"], "limit": ["7"]}
    assert service.requests[0].query == asked
    assert ran.out.splitlines()[1].split() == (
        ["ntc-7", "2026-11-30", "08:11:43Z", "scheduler", "pool.withdrawn", "gpu-1", "4", "pending", "HTTP", "503"]
    )


def test_one_is_shown_with_everything_known_of_it(fleet: Any, service: Any) -> None:
    service.on("GET", "/v1/notices/ntc-7", {**NOTICE, "why": "validation val-1"})
    ran = fleet("notice", "show", "ntc-7")
    assert "why          validation val-1" in ran.out.splitlines()


def test_a_person_acknowledges_for_the_receiver(fleet: Any, service: Any) -> None:
    done = {**NOTICE, "state": "acknowledged", "acknowledged_by": "anna"}
    service.on("POST", "/v1/notices/ntc-7/acknowledge", done)
    ran = fleet("notice", "ack", "ntc-7")
    assert ran.out == "ntc-7 is acknowledged by anna.\n"


def test_a_notice_that_there_is_not_is_refused(fleet: Any, service: Any) -> None:
    said = "there is no notice 'ntc-9'; `fleet notice list` shows them"
    service.problem("POST", "/v1/notices/ntc-9/acknowledge", 404, "not-found", detail=said)
    ran = fleet("notice", "ack", "ntc-9")
    assert (ran.status, ran.out) == (4, "")
    assert said in ran.err


def test_a_filter_that_is_none_is_a_mistake_of_whoever_asks(fleet: Any, service: Any) -> None:
    service.problem(
        "GET", "/v1/notices", 422, "invalid-input", detail="state: is not one of pending, ...", field="state"
    )
    ran = fleet("notice", "list", "--state", "lost")
    assert (ran.status, ran.out) == (2, "")
    assert "state: is not one of" in ran.err


def test_a_program_gets_one_document(fleet: Any, service: Any) -> None:
    service.on("GET", "/v1/notices", {"items": [NOTICE], "next": None})
    assert fleet("--json", "notice", "list").json["items"] == [NOTICE]
