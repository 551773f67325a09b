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
