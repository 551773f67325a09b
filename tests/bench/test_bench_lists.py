"""The benchmark of the lists knows something to ask of every filter that the API has."""

from pathlib import Path

from fleet.app import web
from fleet.service.services import Services
from fleet.settings import load
from fleet.store.database import Database
from fleet.store.evidence import EvidenceFolder
from playbooks.loader import SHIPPED, Library
from tests.bench.bench_lists import lists, questions


def test_no_list_and_no_filter_is_left_out(sqlite_url: str, tmp_path: Path) -> None:
    db = Database(sqlite_url)
    services = Services(db, EvidenceFolder(tmp_path), Library([SHIPPED]))
    document = web.api(load(None, {}), services).openapi()
    known = dict(lists(document, db.now()))
    db.close()
    assert {"/v1/machines", "/v1/validations", "/v1/tickets", "/v1/audit", "/v1/notices", "/v1/attention"} <= set(known)
    assert set(known["/v1/audit"]) >= {"machine", "actor", "action", "allowed", "since", "until", "order"}
    assert {"state": "failed", "machine": "gpu-00042"} in list(questions(known["/v1/validations"]))
