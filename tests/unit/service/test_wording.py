"""Every mistake in a request is told in a sentence that a person can act on, without what was sent."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from fleet.service import shapes
from fleet.service.body import Body, MachineName, Sentence
from fleet.service.machine_record import read_rows
from fleet.service.times import seconds
from fleet.service.wording import explained


class Order(Body):
    machine: MachineName = "gpu-017"
    reason: Sentence = "because"
    kind: Literal["check", "discover"] = "check"
    count: Annotated[int, Field(ge=1, le=500)] = 1
    wait_s: Annotated[float, Field(gt=0)] = 1.0
    sure: bool = True
    names: Annotated[list[str], Field(max_length=2)] = []


@pytest.mark.parametrize(
    ("said", "field", "sentence"),
    [
        ({"machine": "GPU_17"}, "machine", f"is not {shapes.WORDS[shapes.MACHINE]}"),
        ({"machine": 17}, "machine", "is not text; where it looks like a number or a truth value, put it in quotes"),
        ({"reason": ""}, "reason", "is empty"),
        ({"reason": "   "}, "reason", "is empty"),
        ({"reason": "x" * 501}, "reason", "has more than 500 characters"),
        ({"kind": "chec"}, "kind", "is none of 'check' or 'discover'"),
        ({"count": 0}, "count", "must be at least 1"),
        ({"count": 501}, "count", "must be at most 500"),
        ({"count": 1.5}, "count", "is not a whole number"),
        ({"count": "many"}, "count", "is not a whole number"),
        ({"wait_s": 0}, "wait_s", "must be more than 0"),
        ({"wait_s": "long"}, "wait_s", "is not a number"),
        ({"sure": "yes"}, "sure", "is neither true nor false"),
        ({"names": {}}, "names", "is not a list"),
        ({"names": ["a", "b", "c"]}, "names", "has more than 2 entries"),
        ({"nam": []}, "nam", "there is no such field"),
        ([], "", "the body is not an object with named fields"),
    ],
)
def test_a_mistake_is_named_in_plain_words(said: Any, field: str, sentence: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Order.model_validate(said)
    assert [explained(error) for error in raised.value.errors()] == [(field, sentence)]


def test_what_was_sent_is_not_repeated() -> None:
    [row] = read_rows([{"name": "a", "sku": "b", "ssh": {"address": "h", "host_key": "x", "key_ref": "s3cret"}}])[1][1:]
    assert row["field"] == "ssh.key_ref"
    assert "file:/PATH" in row["detail"]
    assert "s3cret" not in row["detail"]


@pytest.mark.parametrize(
    ("text", "why"), [("yesterday", "is not a time"), ("", "is not a time"), ("2026-11-30", "has no offset from UTC")]
)
def test_a_time_is_asked_for_by_an_example(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}.*2026-11-30T08:00:00Z"):
        seconds(text)
