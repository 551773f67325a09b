"""The scheduler and what tells people, in the settings."""

import base64
from pathlib import Path
from typing import Any

import pytest

from fleet.app import parts
from fleet.core.errors import InvalidInput
from fleet.settings import HypervisorSettings, load
from fleet.store.database import Database
from fleet.webhook.receiver import Webhook

URL = "https://scheduler.internal/fleet"


def scheduler(folder: Path, **more: Any) -> Any:
    (folder / "secret").write_text("whsec_" + base64.b64encode(b"k" * 32).decode())
    return load(None, {"scheduler": {"url": URL, "secret_ref": f"file:{folder}/secret", **more}}).scheduler


def test_a_receiver_is_made_of_its_section(tmp_path: Path) -> None:
    rules = scheduler(tmp_path)
    assert rules.deadline_s == 600
    assert parts.receiver(rules, "scheduler") == Webhook(URL, "scheduler", f"file:{tmp_path}/secret")
    assert parts.receiver(None, "attention") is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"url": "http://scheduler.internal/"}, "url: is not https://HOST/... (http:// only to this machine)"),
        ({"url": "https://u:p@scheduler.internal/"}, "url: holds a login; name the secret by secret_ref"),
        ({"secret_ref": "hunter2"}, "scheduler.secret_ref: String should match"),
        ({"deadline_s": 0}, "scheduler.deadline_s: Input should be greater than 0"),
        ({"deadlines": 3}, "scheduler.deadlines: unknown key; did you mean deadline_s?"),
    ],
)
def test_what_could_not_be_right_is_named(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    (tmp_path / "secret").touch()
    file = tmp_path / "fleet.yaml"
    rules = {"url": URL, "secret_ref": "file:/x", **more}
    file.write_text("scheduler:\n" + "".join(f"  {key}: {value!r}\n" for key, value in rules.items()))
    with pytest.raises(InvalidInput) as caught:
        load(file)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("missing", "field"), [("secret", "scheduler.secret_ref"), ("ca", "scheduler.ca")])
def test_a_service_whose_notices_nobody_would_believe_does_not_start(tmp_path: Path, missing: str, field: str) -> None:
    rules = scheduler(tmp_path, ca=str(tmp_path / "ca.pem"))
    if missing == "secret":
        (tmp_path / "secret").unlink()
    with pytest.raises(InvalidInput) as caught:
        parts.receiver(rules, "scheduler")
    assert caught.value.field == field


def test_both_receivers_and_the_deadline_reach_the_workflows(tmp_path: Path, sqlite_url: str) -> None:
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(b"k" * 32).decode())
    receiver = {"url": URL, "secret_ref": f"file:{tmp_path}/secret"}
    sections = {"data_dir": tmp_path, "scheduler": {**receiver, "deadline_s": 42}, "attention": receiver}
    settings, db = load(None, sections), Database(sqlite_url)
    with parts.world(settings, db, HypervisorSettings(), {}) as world:
        made = {"scheduler": world.scheduler, "attention": world.attention_hook}
        assert made == {section: Webhook(URL, section, receiver["secret_ref"]) for section in made}
        assert world.policy.withdrawal_deadline_s == 42
    db.close()
