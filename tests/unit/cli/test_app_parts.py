"""Settings that no validation could pass with are refused at the start."""

import pytest

from fleet.app import parts
from fleet.core.errors import InvalidInput
from fleet.settings import load


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"playbooks": {"directories": ["/no/such"]}}, "playbooks.directories: /no/such is not a directory"),
        ({"validation": {"minimum_checks": ["gpu_brun"]}}, "validation.minimum_checks: there is no check 'gpu_brun'"),
        ({"validation": {"default_plan": "quik"}}, "validation.default_plan: .*there is no 'quik'; known: quick"),
    ],
)
def test_what_does_not_exist_is_named(flags, said):
    with pytest.raises(InvalidInput, match=said):
        parts.library(load(None, flags))


def test_a_sites_own_playbook_hides_a_shipped_one(tmp_path):
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "standard.yaml").write_text("plan: standard\nstages: [[gpu_inventory]]\n")
    library = parts.library(load(None, {"playbooks": {"directories": [str(tmp_path)]}}))
    assert library.plan("standard").value.names == ("gpu_inventory",)
    assert "quick" in library.plan_names()


S3 = {
    "endpoint": "https://s3.internal",
    "bucket": "fleet",
    "access_key_ref": "env:S3_ACCESS",
    "secret_key_ref": "file:KEY",
}


def test_a_bucket_is_reached_by_keys_that_are_references(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv("S3_ACCESS", "access")
    store = parts.evidence(load(None, {"evidence": {"s3": {**S3, "secret_key_ref": f"file:{tmp_path / 'secret'}"}}}))
    assert str(store) == "bucket fleet at https://s3.internal"
    assert "s3cret" not in repr(store)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "evidence.s3.access_key_ref: env:S3_ACCESS: the service's environment has no such variable"),
        ({"access_key_ref": "AKIAEXAMPLE"}, "FLEET_EVIDENCE__S3__ACCESS_KEY_REF: String should match"),
        ({"endpoint": "s3.internal"}, "FLEET_EVIDENCE__S3__ENDPOINT: "),
        ({"prefix": "no-slash"}, "FLEET_EVIDENCE__S3__PREFIX: "),
        ({"buckett": "x"}, "FLEET_EVIDENCE__S3__BUCKETT: unknown key; did you mean bucket"),
    ],
)
def test_a_bucket_that_cannot_be_right_is_named(change, said):
    with pytest.raises(InvalidInput, match=said):
        parts.evidence(load(None, {"evidence": {"s3": {**S3, **change}}}))
