"""What people read when a request was wrong: a name for the field, words for what belongs there."""

import re
from typing import Any

import pytest

from fleet.service import shapes


def _patterns(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
        return own.union(*(_patterns(inner) for inner in schema.values()))
    return set().union(*map(_patterns, schema)) if isinstance(schema, list) else set()


def test_every_shape_that_the_api_asks_for_has_words(api: Any) -> None:
    asked = _patterns(api.http.get("/openapi.json").json())
    assert {shapes.MACHINE, shapes.RECORD, shapes.ACTION, shapes.SECRET} <= asked
    assert asked <= set(shapes.WORDS)


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/validations/ID", f"validation: is not {shapes.WORDS[shapes.RECORD]}"),
        ("/v1/audit?since=monday", "since: is not a time, such as 2026-11-30T08:00:00Z"),
        ("/v1/machines?state=idle", "state: is none of 'available', 'allocated', 'vacated', 'validating', 'failed' or"),
        ("/v1/machines?limit=501", "limit: must be at most 500"),
    ],
)
def test_a_request_that_is_wrong_is_answered_in_words(api: Any, path: str, detail: str) -> None:
    assert api.get(path, 422)["detail"].startswith(detail)


def test_a_path_that_leads_nowhere_is_named(api: Any) -> None:
    assert api.get("/v1/machine", 404)["detail"] == "there is nothing at the path '/v1/machine'"
    answer = api.http.delete("/v1/machines", headers=api.headers())
    assert answer.json()["detail"] == "'/v1/machines' does not take the method DELETE"


def test_a_refusal_says_when_in_the_same_words_everywhere(api: Any) -> None:
    api.add("gpu-17")
    api.post("/v1/machines/gpu-17/hold", {"reason": "new riser"})
    told = [
        api.post("/v1/machines/gpu-17/hold", {"reason": "x"}, 409)["detail"],
        api.post("/v1/machines/gpu-17/override", {"reason": "x", "instance": "vm-1"}, 409)["detail"],
        api.post("/v1/validations", {"machine": "gpu-17"}, 409)["detail"],
    ]
    for sentence in told:
        assert re.search(r"^gpu-17 is held by admin-test since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ: new riser", sentence)
