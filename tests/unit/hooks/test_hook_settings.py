"""The site's hooks in the settings: whatever could not work, or could be forged, is refused at the start."""

from pathlib import Path

import pytest

from fleet.app import parts
from fleet.core.errors import InvalidInput
from fleet.hooks.command import CommandHook
from fleet.hooks.url import UrlHook
from fleet.settings import load

BOTH = """
hooks:
  - name: wipe
    command: [/usr/local/bin/wipe-receipt, --site, fra1]
    deadline_s: 3600
  - name: partition
    url: https://fabric.internal/hooks/partition
    secret_ref: file:/etc/fleet/fabric.secret
    ca: /etc/fleet/ca.pem
"""


def settings(folder: Path, text: str):
    file = folder / "fleet.yaml"
    file.write_text(text)
    return load(file)


def test_hooks_are_made_in_the_order_they_are_written(tmp_path: Path) -> None:
    wipe, partition = (parts.hook(hook) for hook in settings(tmp_path, BOTH).hooks)
    assert wipe == CommandHook("wipe", ("/usr/local/bin/wipe-receipt", "--site", "fra1"), 3600.0)
    url, ref = "https://fabric.internal/hooks/partition", "file:/etc/fleet/fabric.secret"
    assert partition == UrlHook("partition", url, 900.0, ref, Path("/etc/fleet/ca.pem"))


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("{name: wipe}", "hooks.0: has either a command or a url"),
        ("{name: wipe, command: [/bin/true], url: 'https://a/'}", "has either a command or a url"),
        ("{name: wipe, command: []}", "hooks.0.command: "),
        ("{name: wipe, command: wipe --all}", "hooks.0.command: "),
        ("{name: wipe, command: [wipe]}", "command: the program is named by its whole path, not 'wipe'"),
        ("{name: wipe, command: [/bin/true], secret_ref: env:A}", "secret_ref and ca belong to a url"),
        ("{name: wipe, url: 'http://fabric.internal/'}", "url: is not https://HOST/... (http:// only to this machine)"),
        ("{name: wipe, url: 'https://u:p@fabric.internal/'}", "url: holds a login; name the secret by secret_ref"),
        ("{name: wipe, url: 'file:///etc/passwd'}", "url: is not https://HOST/..."),
        (
            "{name: wipe, url: 'https://a/', secret_ref: hunter2}",
            "a secret is named by file:PATH, env:NAME or credential:NAME",
        ),
        ("{name: 'Wipe it', command: [/bin/true]}", "hooks.0.name: "),
        ("{name: wipe, command: [/bin/true], deadline: 3}", "hooks.0.deadline: unknown key; did you mean deadline_s?"),
        ("{name: a, command: [/bin/true]}, {name: a, command: [/bin/true]}", "two hooks are named 'a'"),
    ],
)
def test_a_hook_that_cannot_be_right_is_named(tmp_path: Path, hook: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings(tmp_path, f"hooks: [{hook}]")
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_service_on_this_machine_needs_no_tls(tmp_path: Path) -> None:
    (hook,) = settings(tmp_path, "hooks: [{name: wipe, url: 'http://127.0.0.1:9000/wipe'}]").hooks
    assert hook.url == "http://127.0.0.1:9000/wipe"
