"""/healthz, /metrics and the OpenAPI document."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient

from fleet.api.app import create_app
from fleet.service.access import Role
from fleet.store import attention, workers
from fleet.store.tables import RunRow


def test_health_needs_no_token_and_tells_of_the_worker(api: Any) -> None:
    assert api.http.get("/healthz").json() == {"status": "ok", "database": "ok", "worker_lag_s": 0.0, "workers": 0}
    api.add("lab-01", "vacated")
    api.post("/v1/validations", {"machine": "lab-01"}, 202)
    with api.db.begin() as session:
        session.execute(sa.update(RunRow).values(due_at=RunRow.due_at - 100.0))
    assert api.http.get("/healthz").json()["status"] == "ok"  # it may wait for the site's budgets
    with api.db.begin() as session:
        session.execute(sa.update(RunRow).values(phase="place"))
    nobody = api.http.get("/healthz")
    assert (nobody.status_code, nobody.json()["status"]) == (503, "no-worker")
    assert nobody.json()["worker_lag_s"] >= 100.0
    with api.db.begin() as session:
        workers.beat(session, "w1", 8)
    late = api.http.get("/healthz")
    assert (late.status_code, late.json()["status"], late.json()["workers"]) == (503, "late", 1)
    assert api.http.get("/readyz").status_code == 200  # events can still be taken in


def test_health_says_when_the_database_is_gone(api: Any, sqlite_url: str) -> None:
    api.db.engine.dispose()
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    path.rename(path.with_suffix(".gone"))
    path.mkdir()
    answer = api.http.get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (503, "down")
    assert api.http.get("/readyz").status_code == 503
    numbers = api.http.get("/metrics")
    assert numbers.status_code == 200
    assert "fleet_database_up 0.0" in numbers.text
    assert "fleet_machines{" not in numbers.text
    assert api.http.get("/v1/machines", headers=api.headers()).status_code == 503


def test_metrics_count_the_fleet(api: Any) -> None:
    api.add("lab-01", "vacated")
    api.add("lab-02")
    api.post("/v1/validations", {"machine": "lab-01"}, 202)
    with api.db.begin() as session:
        attention.need(session, "stuck", "lab-02", machine="lab-02", reason="r", next_step="n")
    text = api.http.get("/metrics").text
    for line in (
        'fleet_machines{state="available"} 1.0',
        'fleet_machines{state="validating"} 1.0',
        'fleet_machines{state="failed"} 0.0',
        'fleet_validations_open{phase="queued"} 1.0',
        'fleet_validations_ended{verdict="passed"} 0.0',
        'fleet_attention_open{kind="stuck"} 1.0',
        "fleet_database_up 1.0",
        "fleet_workers 0.0",
        'fleet_runs_open{kind="validation"} 1.0',
        'fleet_http_requests_total{method="POST",route="/v1/validations",status="202"}',
    ):
        assert line in text
    assert "flt_" not in text


def test_metrics_from_elsewhere_need_a_token(api: Any) -> None:
    away = TestClient(create_app(api.services), client=("192.0.2.7", 1234))
    assert away.get("/metrics").status_code == 401
    assert away.get("/metrics", headers=api.headers(Role.AGENT)).status_code == 403
    assert away.get("/metrics", headers=api.headers(Role.VIEWER)).status_code == 200


def test_the_document_describes_every_endpoint(api: Any) -> None:
    document = api.http.get("/openapi.json").json()
    assert len(document["paths"]) > 25
    hold = document["paths"]["/v1/machines/{machine}/hold"]["post"]
    assert hold["security"] == [{"token": []}]
    assert hold["operationId"] == "hold_machine"
    assert "Idempotency-Key" in [p["name"] for p in hold["parameters"]]
    assert hold["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/HoldOrder")
    assert "application/problem+json" in hold["responses"]["default"]["content"]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "security" not in document["paths"]["/healthz"]["get"]
