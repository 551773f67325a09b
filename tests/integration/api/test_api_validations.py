"""Validations through the API: by hand, their record, their logs."""

from typing import Any

import pytest

from fleet.service.access import Role
from fleet.store import validations
from fleet.store.tables import ValidationRow


def started(api: Any, name: str = "lab-01") -> Any:
    api.add(name, "vacated")
    return api.post("/v1/validations", {"machine": name}, 202, role=Role.OPERATOR)


def settled(api: Any, id_: str, verdict: str) -> None:
    with api.db.begin() as session:
        row = session.get_one(ValidationRow, id_)
        row.verdict, row.reason, row.ended_at = verdict, f"it {verdict}", row.created_at + 7.25
        validations.run_of(session, row).ended_at = row.ended_at


def test_a_validation_starts_by_hand(api: Any) -> None:
    validation = started(api)
    assert (validation["machine"], validation["plan"], validation["trigger"]) == ("lab-01", "standard", "manual")
    assert (validation["requested_by"], validation["prior_state"]) == ("operator-test", "vacated")
    assert validation["verdict"] is None
    assert [p["phase"] for p in validation["phases"]] == [validation["phase"]]
    machine = api.get("/v1/machines/lab-01")
    assert (machine["state"], machine["open_validation"]) == ("validating", validation["id"])


def test_a_second_one_is_told_who_since_when_and_why(api: Any) -> None:
    validation = started(api)
    detail = api.post("/v1/validations", {"machine": "lab-01"}, 409)["detail"]
    assert "validating since 20" in detail
    assert validation["id"] in detail
    assert "operator-test" in detail


def test_an_allocated_machine_says_who_is_on_it(api: Any) -> None:
    api.add("lab-01", "allocated", instances=["vm-42"])
    detail = api.post("/v1/validations", {"machine": "lab-01"}, 409)["detail"]
    assert "allocated to vm-42 since 20" in detail
    assert api.get("/v1/validations")["items"] == []
    [entry] = [e for e in api.audit("lab-01") if not e["allowed"]]
    assert entry["action"] == "validation.start"
    assert "vm-42" in entry["detail"]["reason"]


def test_an_unknown_plan_is_named_and_an_unknown_sku_is_for_the_validation_to_say(api: Any) -> None:
    api.add("lab-01", "vacated", sku="no-such-sku")
    problem = api.post("/v1/validations", {"machine": "lab-01", "plan": "no-such-plan"}, 422)
    assert problem["field"] == "plan"
    assert api.machine("lab-01").state == "vacated"
    validation = api.post("/v1/validations", {"machine": "lab-01"}, 202)
    assert "no-such-sku" in validation["playbook"]["sku_error"]


def test_an_abort_is_asked_for_once(api: Any) -> None:
    validation = started(api)
    path = f"/v1/validations/{validation['id']}/abort"
    assert api.post(path, {"reason": "wrong machine"}, 202)["abort"] == {"reason": "wrong machine", "by": "admin-test"}
    detail = api.post(path, {"reason": "again"}, 409)["detail"]
    assert "already, by admin-test: wrong machine" in detail


def test_an_abort_comes_too_late_for_a_settled_one(api: Any) -> None:
    validation = started(api)
    settled(api, validation["id"], "passed")
    detail = api.post(f"/v1/validations/{validation['id']}/abort", {"reason": "x"}, 409)["detail"]
    assert "has ended (passed): it passed" in detail


def test_lists_by_machine_and_verdict_newest_first(api: Any) -> None:
    ids = [started(api, name)["id"] for name in ("a", "b", "c")]
    settled(api, ids[0], "passed")
    settled(api, ids[1], "failed")
    assert [v["id"] for v in api.get("/v1/validations")["items"]] == ids[::-1]
    assert [v["id"] for v in api.get("/v1/validations?state=open")["items"]] == [ids[2]]
    assert [v["id"] for v in api.get("/v1/validations?state=failed")["items"]] == [ids[1]]
    assert [v["id"] for v in api.get("/v1/validations?machine=a&state=passed")["items"]] == [ids[0]]
    assert "aborted" in api.get("/v1/validations?state=done", 422)["detail"]


def test_the_vms_keys_are_on_no_answer(api: Any) -> None:
    validation = started(api)
    with api.db.begin() as session:
        session.get_one(ValidationRow, validation["id"]).secrets = {"host_key_private": "-----BEGIN OPENSSH"}
    assert "OPENSSH" not in str(api.get(f"/v1/validations/{validation['id']}"))
    assert "OPENSSH" not in str(api.get("/v1/validations"))


class TestRecord:
    HOSTILE = "\x1b[2J\u202e<script>\x00"

    @pytest.fixture
    def validation(self, api: Any) -> str:
        id_ = str(started(api)["id"])
        file = api.services.evidence.put(id_, "gpu_burn", "stdout", self.HOSTILE.encode())
        with api.db.begin() as session:
            validations.put_measurement(
                session,
                id_,
                "gpu_burn",
                "gpu_burn",
                ended="exited",
                exit_status=0,
                started_at=None,
                duration_s=1.5,
                truncated=False,
                files={"stdout": file},
            )
            finding = {"device": "gpu3", "code": "wrong", "outcome": "failed", "reason": self.HOSTILE}
            validations.put_check(
                session,
                id_,
                "gpu_burn",
                mode="enforce",
                outcome="failed",
                reason="x" * 50_000,
                findings=[finding],
                facts={"gflops": float("nan")},
                limits={"gflops": 9000},
            )
        return id_

    def test_checks_and_limits_are_shown_bounded_and_escaped(self, api: Any, validation: str) -> None:
        answer = api.http.get(f"/v1/validations/{validation}", headers=api.headers())
        assert b"\x1b" not in answer.content
        assert "\u202e" not in answer.text
        [check] = answer.json()["checks"]
        assert check["findings"][0]["reason"] == self.HOSTILE
        assert check["facts"] == {"gflops": None}
        assert 20_000 <= len(check["reason"]) < 20_100
        assert answer.json()["limits"] == {"gpu_burn": {"gflops": 9000}}

    def test_logs_are_listed_and_given_byte_for_byte(self, api: Any, validation: str) -> None:
        [log] = api.get(f"/v1/validations/{validation}/logs?limit=500")["items"]
        assert (log["name"], log["stream"], log["ended"], log["bytes"]) == ("gpu_burn", "stdout", "exited", 16)
        answer = api.http.get(f"/v1/validations/{validation}/logs/gpu_burn/stdout", headers=api.headers(Role.VIEWER))
        assert answer.content == self.HOSTILE.encode()
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"

    @pytest.mark.parametrize("path", ["gpu_burn/stderr", "nccl/stdout", "..%2F..%2Fetc/stdout", "gpu_burn/passwd"])
    def test_what_was_not_stored_is_not_read(self, api: Any, validation: str, path: str) -> None:
        answer = api.http.get(f"/v1/validations/{validation}/logs/{path}", headers=api.headers())
        assert answer.status_code in (404, 422)
        assert answer.headers["content-type"] == "application/problem+json"


def test_an_unknown_validation_is_named(api: Any) -> None:
    for path in ("/v1/validations/val-0", "/v1/validations/val-0/logs", "/v1/validations/val-0/logs/nccl/stdout"):
        assert "val-0" in api.get(path, 404)["detail"]
