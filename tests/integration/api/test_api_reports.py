"""Events, tickets, attention, site and lab through the API."""

from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.states import Move
from fleet.service.access import Role
from fleet.store import attention, machines, tickets
from fleet.store.audit import By
from fleet.store.tables import EventRow, RunRow


def event(kind: str, instance: str = "vm-1", id_: str = "ev-1", **more: Any) -> dict[str, Any]:
    return {"id": id_, "kind": f"instance.{kind}", "machine": "lab-01", "instance": instance, **more}


class TestEvents:
    def test_a_departure_vacates_at_once_and_looks_for_the_domain(self, api_on_both: Any) -> None:
        api = api_on_both
        api.add("lab-01", "allocated")
        body = event("migrated", why="user asked", signals=["Xid 79", {"xid": 79, "bus": "0000:1b:00.0"}])
        done = api.post("/v1/events", body, 202, role=Role.CONTROL_PLANE)
        assert (done["id"], done["state"]) == ("ev-1", "applied")
        machine = api.get("/v1/machines/lab-01")
        assert machine["state"] == "vacated"
        assert machine["vacated_because"]["signals"] == body["signals"]
        with api.db.read() as session:
            assert session.scalar(sa.select(RunRow.subject).where(RunRow.kind == "vacancy")) == "lab-01"
        assert {"event.accepted", "machine.vacated"} <= {e["action"] for e in api.audit("lab-01")}

    def test_the_same_event_twice_is_one(self, api_on_both: Any) -> None:
        api = api_on_both
        api.add("lab-01", "allocated")
        first = api.post("/v1/events", event("removed"), 202)
        assert api.post("/v1/events", event("removed"), 200) == first
        problem = api.post("/v1/events", event("removed", why="otherwise"), 409)
        assert problem["code"] == "conflict"
        assert "another body" in problem["detail"]

    def test_a_refused_event_leaves_only_its_audit_entry(self, api: Any) -> None:
        api.add("lab-01", "allocated")
        version = api.machine("lab-01").version
        assert "vm-2 is not on lab-01" in api.post("/v1/events", event("removed", "vm-2"), 409)["detail"]
        with api.db.read() as session:
            assert session.scalar(sa.select(sa.func.count()).select_from(EventRow)) == 0
        assert api.machine("lab-01").version == version
        [entry] = [e for e in api.audit("lab-01") if not e["allowed"]]
        assert entry["action"] == "event.report"
        assert '"ev-1"' in entry["detail"]["request"]

    def test_a_placed_waits_for_the_last_ones_removed(self, api: Any) -> None:
        api.add("lab-01", "allocated")
        assert api.post("/v1/events", event("placed", "vm-2"), 202)["state"] == "waiting"

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("kind", "instance.exploded"),
            ("instance", "vm 1; rm"),
            ("id", "a\x1b[0m"),
            ("machine", "LAB"),
            ("why", "x" * 501),
            ("why", "two\nlines"),
            ("signals", ["x"] * 101),
            ("signals", [{"a": {"b": 1}}]),
            ("when", "now"),
        ],
    )
    def test_a_bad_field_is_named(self, api: Any, field: str, value: Any) -> None:
        problem = api.post("/v1/events", {**event("placed"), field: value}, 422)
        assert problem["field"].split(".")[0] == field


class TestTickets:
    @pytest.fixture
    def failed(self, api: Any) -> list[str]:
        """A failed machine with two open tickets; their ids."""
        api.add("lab-01", "vacated")
        validation = api.post("/v1/validations", {"machine": "lab-01"}, 202)["id"]
        with api.db.begin() as session:
            machines.move(session, machines.get(session, "lab-01"), Move.FAIL, "gpu3 computes wrong", By("test"))
            return [
                tickets.file(
                    session,
                    machine="lab-01",
                    cause=cause,
                    title=cause,
                    body="gpu3 \x1b[31m",
                    checks=["gpu_burn"],
                    validation=validation,
                    by="test",
                ).id
                for cause in ("gpu_burn:wrong", "nccl:slow")
            ]

    def test_the_last_fixed_ticket_sends_the_machine_to_validation(self, api: Any, failed: list[str]) -> None:
        fixed = api.post(f"/v1/tickets/{failed[0]}/fixed", {"note": "GPU 3 replaced"}, role=Role.HARDWARE)
        assert (fixed["state"], fixed["history"][-1]["actor"]) == ("fixed", "hardware-test")
        assert api.machine("lab-01").state == "failed"
        api.post(f"/v1/tickets/{failed[1]}/fixed", role=Role.HARDWARE)
        assert api.machine("lab-01").state == "vacated"
        with api.db.read() as session:
            run = session.scalars(sa.select(RunRow).where(RunRow.kind == "vacancy")).one()
            assert (run.subject, run.data["trigger"]) == ("lab-01", "fixed")
        assert "fixed already" in api.post(f"/v1/tickets/{failed[0]}/fixed", {}, 409)["detail"]

    def test_tickets_are_listed_and_shown(self, api: Any, failed: list[str]) -> None:
        api.post(f"/v1/tickets/{failed[0]}/fixed")
        assert [t["id"] for t in api.get("/v1/tickets?machine=lab-01")["items"]] == failed
        assert [t["id"] for t in api.get("/v1/tickets?state=open")["items"]] == [failed[1]]
        assert api.get(f"/v1/tickets/{failed[1]}")["checks"] == ["gpu_burn"]
        assert "reopened" in api.get("/v1/tickets?state=new", 422)["detail"]
        assert "tkt-0" in api.get("/v1/tickets/tkt-0", 404)["detail"]


def test_attention_is_resolved_once_by_somebody(api: Any) -> None:
    with api.db.begin() as session:
        attention.need(session, "vacancy", "lab-01", machine=None, reason="unreachable", next_step="look")
    [waits] = api.get("/v1/attention")["items"]
    done = api.post(f"/v1/attention/{waits['id']}/resolve", {"note": "cable"}, role=Role.OPERATOR)
    assert done["resolved_by"] == "operator-test"
    assert api.get("/v1/attention")["items"] == []
    assert "already resolved by operator-test" in api.post(f"/v1/attention/{waits['id']}/resolve", None, 409)["detail"]
    assert api.audit()[1]["detail"]["note"] == "cable"


def test_attention_is_shown_and_found_by_kind_and_standing(api: Any) -> None:
    with api.db.begin() as session:
        for kind in ("vacancy", "stuck"):
            attention.need(session, kind, "lab-01", machine=None, reason=f"{kind} of it", next_step="look")
    assert [row["kind"] for row in api.get("/v1/attention")["items"]] == ["vacancy", "stuck"]
    [stuck] = api.get("/v1/attention?kind=stuck")["items"]
    assert api.get(f"/v1/attention/{stuck['id']}") == stuck
    assert (stuck["state"], stuck["reason"], stuck["next_step"]) == ("open", "stuck of it", "look")
    api.post(f"/v1/attention/{stuck['id']}/resolve")
    [resolved] = api.get("/v1/attention?state=resolved")["items"]
    assert (resolved["id"], resolved["state"], resolved["resolved_by"]) == (stuck["id"], "resolved", "admin-test")
    assert [row["kind"] for row in api.get("/v1/attention")["items"]] == ["vacancy"]
    assert "no attention record 'att-0'" in api.get("/v1/attention/att-0", 404)["detail"]
    assert "att-0" in api.post("/v1/attention/att-0/resolve", None, 404)["detail"]


def test_the_mode_is_switched_with_who_and_why(api: Any) -> None:
    assert api.post("/v1/site/mode", {"mode": "enforce", "reason": "a month without a wrong one"})["mode"] == "enforce"
    [entry] = [e for e in api.audit() if e["action"] == "site.mode"]
    assert entry["detail"] == {"was": "observe", "now": "enforce", "reason": "a month without a wrong one"}
    assert "in mode enforce already" in api.post("/v1/site/mode", {"mode": "enforce"}, 409)["detail"]
    assert api.post("/v1/site/mode", {"mode": "off"}, 422)["field"] == "mode"
    api.post("/v1/site/mode", {"mode": "observe"}, 403, role=Role.CONTROL_PLANE)


def test_pause_and_resume(api: Any) -> None:
    assert api.get("/v1/site") == {
        "id": "site",
        "mode": "observe",
        "paused": None,
        "two_person_rule": False,
    }
    paused = api.post("/v1/pause", {"reason": "power works"}, role=Role.OPERATOR)["paused"]
    assert (paused["by"], paused["reason"]) == ("operator-test", "power works")
    assert "paused already by operator-test" in api.post("/v1/pause", {"reason": "me too"}, 409)["detail"]
    assert api.post("/v1/resume", {})["paused"] is None
    assert "not paused" in api.post("/v1/resume", None, 409)["detail"]


def test_faults_go_in_and_out(api: Any) -> None:
    assert api.get("/v1/lab/faults?limit=500")["items"][0]["id"] == "faulty-gpu"
    api.post("/v1/lab/lab-01/break", {"fault": "faulty-gpu"})
    assert api.get("/v1/lab/machines")["items"][0] == {"id": "lab-01", "name": "lab-01", "faults": ["faulty-gpu"]}
    api.post("/v1/lab/lab-01/mend", {"fault": "faulty-gpu"})
    assert api.services.lab.broken["lab-01"] == []
    assert api.post("/v1/lab/lab-01/break", {"fault": "gremlins"}, 404)["code"] == "not-found"
    assert [e["action"] for e in api.audit("lab-01") if e["allowed"]] == ["lab.mended", "lab.broken"]
