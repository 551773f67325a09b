"""Machines through the API: records, holds, the pool's gate."""

from typing import Any

import pytest

from fleet.core.states import State
from fleet.service.access import Role
from fleet.store import attention
from fleet.store.tables import EventRow, MachineRow

SSH = {
    "address": "10.0.0.5",
    "port": 2222,
    "user": "fleet",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0123456789abcdefghijklmnopqrstuvwxyzABCDEF",
    "key_ref": "file:/etc/fleet/login",
}
GPU = {"slot": "gpu0", "kind": "gpu", "pci": "0000:1b:00.0", "guest_pci": "0000:05:00.0", "serial": "1562921000123"}


def test_an_added_machine_is_not_in_the_pool(api: Any) -> None:
    made = api.post("/v1/machines", {"name": "gpu-17", "sku": "sim-a100x8"}, 201)
    assert (made["id"], made["state"], made["ssh"]) == ("gpu-17", "vacated", None)
    assert "not available" in api.post("/v1/machines/gpu-17/claim", {"instance": "vm-1"}, 409)["detail"]


def test_what_was_recorded_is_shown(api: Any) -> None:
    body = {"ssh": SSH, "slots": [GPU], "rack": "r12", "power_feed": "A", "handed_over_at": "2026-10-01T08:00:00+02:00"}
    shown = api.add("gpu-17", **body)
    assert shown == api.get("/v1/machines/gpu-17")
    assert shown["ssh"] == SSH
    assert shown["slots"] == [{**GPU, "guid": None, "switch_port": None}]
    assert shown["handed_over_at"] == "2026-10-01T06:00:00.000Z"
    assert [e["action"] for e in api.audit("gpu-17")] == ["machine.added"]


def test_a_name_is_taken_once(api: Any) -> None:
    api.add("gpu-17")
    assert "already" in api.post("/v1/machines", {"name": "gpu-17", "sku": "other"}, 409)["detail"]
    assert api.machine("gpu-17").sku == "sim-a100x8"


def test_an_unknown_machine_is_named(api: Any) -> None:
    assert "nowhere" in api.get("/v1/machines/nowhere", 404)["detail"]
    assert api.post("/v1/machines/nowhere/hold", {"reason": "x"}, 404)["code"] == "not-found"


def test_a_hold_says_who_since_when_and_why(api: Any) -> None:
    api.add("gpu-17")
    held = api.post("/v1/machines/gpu-17/hold", {"reason": "swap of DIMM 3", "lock_power": True}, role=Role.OPERATOR)
    assert held["hold"]["owner"] == "operator-test"
    assert held["hold"]["lock_power"] is True
    for path, body in (
        ("/v1/machines/gpu-17/hold", {"reason": "me too"}),
        ("/v1/machines/gpu-17/claim", {"instance": "vm-9"}),
        ("/v1/machines/gpu-17/override", {"instance": "vm-9", "reason": "now"}),
        ("/v1/validations", {"machine": "gpu-17"}),
    ):
        detail = api.post(path, body, 409)["detail"]
        assert "held by operator-test since 20" in detail
        assert "swap of DIMM 3" in detail
    assert api.post("/v1/machines/gpu-17/unhold")["hold"] is None
    assert "not held" in api.post("/v1/machines/gpu-17/unhold", {}, 409)["detail"]
    actions = [e["action"] for e in api.audit("gpu-17") if e["allowed"]]
    assert actions == ["machine.unheld", "machine.held", "machine.added"]


def test_a_lifted_hold_lets_the_placed_instance_in_that_waited(api: Any) -> None:
    api.add("gpu-17")
    api.post("/v1/machines/gpu-17/hold", {"reason": "swap of DIMM 3"})
    with api.db.begin() as session:
        placed = {"kind": "instance.placed", "machine": "gpu-17", "instance": "vm-9", "signals": [], "received_at": 1.0}
        session.add(EventRow(id="e-1", body_sha256="", state="waiting", **placed))
    lifted = api.post("/v1/machines/gpu-17/unhold")
    assert (lifted["state"], [i["id"] for i in lifted["instances"]]) == ("allocated", ["vm-9"])


def test_an_expired_hold_binds_nobody(api: Any) -> None:
    api.add("gpu-17")
    held = api.post("/v1/machines/gpu-17/hold", {"reason": "short", "expires_in_s": 1e-9})
    assert held["hold"] is None
    assert api.post("/v1/machines/gpu-17/claim", {"instance": "vm-9"})["state"] == "allocated"


def test_withdraw_takes_it_out_and_holds_it(api: Any) -> None:
    api.add("gpu-17")
    out = api.post("/v1/machines/gpu-17/withdraw", {"reason": "fan noise"})
    assert out["state"] == "vacated"
    assert out["hold"]["reason"] == "withdrawn: fan noise"
    assert "vacated" in api.post("/v1/machines/gpu-17/withdraw", {"reason": "again"}, 409)["detail"]


def test_withdraw_and_retire_of_an_allocated_machine_say_who_has_it(api: Any) -> None:
    api.add("gpu-17", "allocated", instances=["vm-42"])
    for act in ("withdraw", "retire"):
        assert "allocated to vm-42 since 20" in api.post(f"/v1/machines/gpu-17/{act}", {"reason": "x"}, 409)["detail"]


def test_a_retired_machine_is_out_for_good(api: Any) -> None:
    api.add("gpu-17", "vacated")
    with api.db.begin() as session:
        attention.need(session, "stuck", "gpu-17", machine="gpu-17", reason="r", next_step="n")
    assert api.post("/v1/machines/gpu-17/retire", {"reason": "sold"})["state"] == "retired"
    assert api.get("/v1/attention")["items"] == []
    assert "retired since 20" in api.post("/v1/validations", {"machine": "gpu-17"}, 409)["detail"]
    assert "retired since 20" in api.post("/v1/machines/gpu-17/hold", {"reason": "x"}, 409)["detail"]
    assert api.post("/v1/machines/gpu-17/retire", {"reason": "again"}, 409)["code"] == "illegal-move"


def test_claim_is_the_gate(api: Any) -> None:
    api.add("gpu-17")
    claimed = api.post("/v1/machines/gpu-17/claim", {"instance": "vm-9"}, role=Role.CONTROL_PLANE)
    assert [i["id"] for i in claimed["instances"]] == ["vm-9"]
    again = api.post("/v1/machines/gpu-17/claim", {"instance": "vm-9"}, role=Role.CONTROL_PLANE)
    assert again["version"] == claimed["version"]
    detail = api.post("/v1/machines/gpu-17/claim", {"instance": "vm-10"}, 409)["detail"]
    assert "allocated" in detail
    assert "vm-9" in detail


@pytest.mark.parametrize("state", [State.VACATED, State.FAILED])
def test_override_gives_a_machine_that_is_out_away_with_a_reason(api: Any, state: State) -> None:
    api.add("gpu-17", "vacated")
    with api.db.begin() as session:
        session.get_one(MachineRow, "gpu-17").state = state
        attention.need(session, "aborted", "gpu-17", machine="gpu-17", reason="r", next_step="revalidate it")
    assert "not available" in api.post("/v1/machines/gpu-17/claim", {"instance": "vm-9"}, 409)["detail"]
    given = api.post("/v1/machines/gpu-17/override", {"instance": "vm-9", "reason": "customer insists"})
    assert given["state"] == "allocated"
    assert "customer insists" in given["why"]
    assert api.machine("gpu-17").instances[0].id == "vm-9"
    assert api.get("/v1/attention")["items"] == []


def test_override_of_an_available_machine_is_pointless(api: Any) -> None:
    api.add("gpu-17")
    detail = api.post("/v1/machines/gpu-17/override", {"instance": "vm-9", "reason": "x"}, 409)["detail"]
    assert "claim it" in detail


def test_override_of_a_validating_machine_ends_the_validation_first(api: Any) -> None:
    api.add("gpu-17", "vacated")
    validation = api.post("/v1/validations", {"machine": "gpu-17"}, 202)
    machine = api.post("/v1/machines/gpu-17/override", {"instance": "vm-9", "reason": "urgent"}, 202)
    assert (machine["state"], machine["open_validation"]) == ("validating", validation["id"])
    assert api.abort_reason(validation["id"]) == "overridden for vm-9: urgent"


def test_a_hold_ends_a_validation_only_when_asked_to(api: Any) -> None:
    for name, abort in (("gpu-1", False), ("gpu-2", True)):
        api.add(name, "vacated")
        validation = api.post("/v1/validations", {"machine": name}, 202)
        api.post(f"/v1/machines/{name}/hold", {"reason": "hands in", "abort": abort})
        assert (api.abort_reason(validation["id"]) is not None) == abort


def test_machines_are_listed_by_name_and_state(api: Any) -> None:
    for name, state in (("b", "vacated"), ("a", "available"), ("c", "allocated")):
        api.add(name, state)
    assert [m["name"] for m in api.get("/v1/machines")["items"]] == ["a", "b", "c"]
    assert [m["name"] for m in api.get("/v1/machines?state=vacated")["items"]] == ["b"]
    assert [m["name"] for m in api.get("/v1/machines?machine=c")["items"]] == ["c"]
    assert api.get("/v1/machines?machine=c&state=vacated")["items"] == []
    assert api.get("/v1/machines?machine=d")["items"] == []


def test_an_unknown_state_is_told_the_known_ones(api: Any) -> None:
    problem = api.get("/v1/machines?state=broken", 422)
    assert problem["field"] == "state"
    assert all(state in problem["detail"] for state in State)


class TestImport:
    def rows(self) -> list[dict[str, Any]]:
        return [
            {"name": "gpu-1", "sku": "sim-a100x8", "state": "available", "rack": "r1"},
            {"name": "gpu-2", "sku": "no-such-sku", "ssh": SSH, "slots": [GPU]},
            {"name": "gpu-3", "sku": "sim-a100x8", "state": "allocated", "instances": ["vm-1"]},
        ]

    def test_all_good_rows_are_in(self, api: Any) -> None:
        done = api.post("/v1/machines/import", {"machines": self.rows()}, 201)
        assert (done["imported"], done["added"], done["updated"]) == (3, 3, 0)
        states = {m["name"]: m["state"] for m in api.get("/v1/machines")["items"]}
        assert states == {"gpu-1": "available", "gpu-2": "vacated", "gpu-3": "allocated"}

    def test_one_bad_row_and_nothing_is_in_and_every_bad_row_is_listed(self, api: Any) -> None:
        api.add("gpu-9")
        bad = [
            {"name": "gpu-9", "sku": "x"},
            {"name": "bad;name", "sku": "x", "colour": "red"},
            {"name": "gpu-1", "sku": "x"},
            {"name": "gpu-4", "sku": "x", "state": "allocated"},
            {"name": "gpu-5", "sku": "x", "slots": [GPU, {**GPU, "slot": "gpu1"}]},
            {"sku": "x"},
        ]
        problem = api.post("/v1/machines/import", {"machines": self.rows() + bad}, 422)
        listed = [(e["row"], e["field"]) for e in problem["errors"]]
        assert listed == [
            (4, "name"),
            (5, "name"),
            (5, "colour"),
            (6, "name"),
            (7, "instances"),
            (8, "slots"),
            (9, "name"),
        ]
        assert all(e["detail"] for e in problem["errors"])
        assert "6 bad rows" in problem["detail"]
        assert [m["name"] for m in api.get("/v1/machines")["items"]] == ["gpu-9"]

    def test_a_dry_run_lists_what_is_wrong_and_imports_nothing(self, api: Any) -> None:
        order = {"machines": self.rows(), "dry_run": True}
        assert api.post("/v1/machines/import", order, 200) == {"imported": 0, "added": 0, "updated": 0}
        problem = api.post("/v1/machines/import", {**order, "machines": [*self.rows(), *self.rows()[:1]]}, 422)
        assert [(e["row"], e["name"], e["field"]) for e in problem["errors"]] == [(4, "gpu-1", "name")]
        assert api.get("/v1/machines")["items"] == []

    def test_update_completes_a_record_and_leaves_its_state(self, api: Any) -> None:
        api.post("/v1/machines", {"name": "gpu-2", "sku": "no-such-sku"}, 201)
        api.post("/v1/machines/import", {"machines": self.rows(), "update": True}, 201)
        shown = api.get("/v1/machines/gpu-2")
        assert shown["ssh"]["address"] == "10.0.0.5"
        assert shown["state"] == "vacated"

    def test_a_machine_in_validation_is_not_changed_under_it(self, api: Any) -> None:
        api.add("gpu-2", "vacated")
        api.post("/v1/validations", {"machine": "gpu-2"}, 202)
        problem = api.post("/v1/machines/import", {"machines": self.rows(), "update": True}, 422)
        assert [e["row"] for e in problem["errors"]] == [2]

    def test_a_thousand_rows(self, api: Any) -> None:
        rows = [{"name": f"gpu-{n:04}", "sku": "sim-a100x8", "state": "available"} for n in range(1000)]
        assert api.post("/v1/machines/import", {"machines": rows}, 201)["added"] == 1000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "a b"),
        ("name", "UPPER"),
        ("name", "-rf"),
        ("name", "a\nb"),
        ("name", "x" * 64),
        ("name", "a$(id)"),
        ("name", "a<b"),
        ("sku", "../etc/passwd"),
        ("rack", "r1\x1b[2J"),
        ("capacity", 0),
        ("capacity", "1"),
        ("capacity", True),
        ("guest_address", "192.168.1.300"),
        ("guest_port", 70000),
        ("scratch_disk", "/dev/../etc/shadow"),
        ("scratch_disk", "/etc/shadow"),
        ("scratch_disk", "/dev/sda; reboot"),
        ("handed_over_at", "yesterday"),
        ("handed_over_at", "2026-10-01T08:00:00"),
        ("state", "failed"),
        ("instances", ["vm 1"]),
        ("ssh", {**SSH, "address": "-oProxyCommand=id"}),
        ("ssh", {**SSH, "host_key": "ssh-ed25519 AAAA\nother"}),
        ("ssh", {**SSH, "key_ref": "password:hunter2"}),
        ("ssh", {**SSH, "password": "hunter2"}),
        ("ssh", {"address": "10.0.0.5"}),
        ("slots", [{**GPU, "pci": "1b:00.0"}]),
        ("slots", [{**GPU, "kind": "fpga"}]),
        ("slots", [{**GPU, "serial": "<x/>"}]),
        ("unheard", 1),
    ],
)
def test_a_bad_field_is_named(api: Any, field: str, value: Any) -> None:
    problem = api.post("/v1/machines", {"name": "gpu-17", "sku": "x", **{field: value}}, 422)
    assert problem["field"].split(".")[0] == field
    assert "hunter2" not in str(problem)
    assert api.get("/v1/machines")["items"] == []
