"""One key, one effect, one answer: repeated, raced, and after a crash."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.errors import StoreBusy
from fleet.service.access import Action, Actor, Permit, Role
from fleet.service.writing import Answer, key_of, perform
from fleet.store.tables import AuditRow, IdempotencyRow, MachineRow, TokenRow

KEY = {"Idempotency-Key": "6f1c-1"}
NEW = {"name": "gpu-1", "sku": "sim-a100x8", "state": "available"}


def send(api: Any, path: str, body: Any, role: Role = Role.ADMIN, **headers: str) -> Any:
    return api.http.post(path, json=body, headers={**api.headers(role), **KEY, **headers})


def test_a_repeated_request_gets_the_first_answer(api_on_both: Any) -> None:
    api = api_on_both
    first = send(api, "/v1/machines", NEW)
    api.post("/v1/machines/gpu-1/hold", {"reason": "later"})
    again = send(api, "/v1/machines", NEW)
    assert (again.status_code, again.content) == (first.status_code, first.content) == (201, first.content)
    assert len([e for e in api.audit() if e["action"] == "machine.added"]) == 1


def test_the_key_with_another_request_is_a_conflict(api: Any) -> None:
    send(api, "/v1/machines", NEW)
    for path, body in (
        ("/v1/machines", {**NEW, "name": "gpu-2"}),
        ("/v1/machines/gpu-1/hold", {"reason": "x"}),
        ("/v1/machines/gpu-1/unhold", None),
    ):
        answer = send(api, path, body)
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency-key-reused")
    assert len(api.get("/v1/machines")["items"]) == 1


def test_two_callers_do_not_meet_on_one_key(api: Any) -> None:
    assert send(api, "/v1/machines", NEW).status_code == 201
    assert send(api, "/v1/machines", {**NEW, "name": "gpu-2"}, Role.OPERATOR).status_code == 201


def test_a_refusal_is_not_kept_because_nothing_happened(api: Any) -> None:
    api.add("gpu-1")
    api.post("/v1/machines/gpu-1/hold", {"reason": "x"})
    assert send(api, "/v1/machines/gpu-1/claim", {"instance": "vm-1"}).status_code == 409
    api.post("/v1/machines/gpu-1/unhold")
    assert send(api, "/v1/machines/gpu-1/claim", {"instance": "vm-1"}).status_code == 200


def test_of_many_at_the_same_time_one_acts_and_all_get_its_answer(api_on_both: Any) -> None:
    api = api_on_both
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _n: send(api, "/v1/machines", NEW), range(8)))
    assert {a.status_code for a in answers} == {201}
    assert len({a.content for a in answers}) == 1
    with api.db.read() as session:
        added = sa.select(sa.func.count()).select_from(AuditRow).where(AuditRow.action == "machine.added")
        assert session.scalar(added) == 1


def test_of_many_with_keys_of_their_own_one_gets_the_machine(api_on_both: Any) -> None:
    api = api_on_both
    api.add("gpu-1")

    def claim(n: int) -> Any:
        path = "/v1/machines/gpu-1/claim"
        return send(api, path, {"instance": f"vm-{n}"}, Role.CONTROL_PLANE, **{"Idempotency-Key": f"k{n}"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(claim, range(8)))
    assert sorted(a.status_code for a in answers) == [200] + [409] * 7
    assert len(api.machine("gpu-1").instances) == 1


def test_the_same_event_from_many_is_applied_once(api_on_both: Any) -> None:
    api = api_on_both
    api.add("gpu-1", "allocated")
    body = {"id": "ev-1", "kind": "instance.removed", "machine": "gpu-1", "instance": "vm-1"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _n: api.http.post("/v1/events", json=body, headers=api.headers()), range(8)))
    assert sorted(a.status_code for a in answers) == [200] * 7 + [202]
    assert len({a.content for a in answers}) == 1


def test_a_crash_before_the_commit_leaves_nothing_that_blocks(api_on_both: Any) -> None:
    db = api_on_both.db
    permit = Permit(Actor("test", Role.ADMIN, "tok-1", None), Action.MACHINE_ADD, "POST /v1/machines")
    key = key_of(permit, "k", b"{}")

    def crash(session: Any) -> Answer:
        session.execute(sa.update(MachineRow).values(sku="half done"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(db, permit, crash, key=key)
    done = perform(db, permit, lambda _session: Answer.done({"ok": True}), key=key)
    assert (done.status, done.response) == (200, '{"ok":true}')


def test_a_tokens_secret_is_not_kept_for_a_repetition(api: Any) -> None:
    body = {"name": "ci", "role": "viewer"}
    token = send(api, "/v1/tokens", body).json()["token"]
    again = send(api, "/v1/tokens", body)
    assert again.status_code == 409
    assert "shown once" in again.json()["detail"]
    with api.db.read() as session:
        assert all(token not in row.response for row in session.scalars(sa.select(IdempotencyRow)))
        assert len(session.scalars(sa.select(TokenRow).where(TokenRow.name == "ci")).all()) == 1


def test_answers_are_forgotten_after_a_day(api: Any) -> None:
    send(api, "/v1/machines", NEW)
    with api.db.begin() as session:
        session.execute(sa.update(IdempotencyRow).values(at=IdempotencyRow.at - 24 * 3600 - 1))
    assert send(api, "/v1/machines", {**NEW, "name": "gpu-2"}).status_code == 201


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "\xe9"])
def test_a_bad_key_is_refused(api: Any, key: str) -> None:
    headers = {**{k.encode(): v.encode() for k, v in api.headers().items()}, b"Idempotency-Key": key.encode("latin-1")}
    answer = api.http.post("/v1/machines", json=NEW, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (400, "Idempotency-Key")


def test_a_busy_database_asks_to_come_again(api: Any) -> None:
    class Busy:
        def machines(self) -> Any:
            raise StoreBusy("the database is locked by another process")

    object.__setattr__(api.services, "lab", Busy())
    answer = api.http.get("/v1/lab/machines", headers=api.headers())
    assert (answer.status_code, answer.json()["code"]) == (503, "store-busy")
    assert answer.headers["retry-after"] == "1"
