"""What the remote side takes in before any network: words, pins and references to secrets."""

from pathlib import Path

import pytest

from fleet.core.errors import InvalidInput
from fleet.remote.host_keys import HostKey
from fleet.remote.printable import printable
from fleet.remote.secrets import resolve

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (b"\x1b[31mred\x1b[0m\r\n\tx\x00y", "[31mred [0m x y"),
        ("a\u202eb\u2028c\x85d\ufeffe", "a b c d e"),
        (b"\xff\xfe", "��"),
        ("x" * 400, "x" * 296 + " ..."),
        ("ünïcode 測試", "ünïcode 測試"),
        ("", ""),
    ],
)
def test_words_from_outside_are_one_harmless_line(words: str | bytes, shown: str) -> None:
    assert printable(words) == shown


def test_a_host_key_by_type_and_bytes_whatever_its_comment() -> None:
    key = HostKey.parse(f"  {KEY} root@host\n")
    assert key == HostKey.parse(KEY)
    assert key.fingerprint == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


@pytest.mark.parametrize("text", ["", "ssh-ed25519", f"ssh-rsa {KEY.split()[1]}", KEY[:30], "x " + KEY])
def test_a_pin_that_is_no_key(text: str) -> None:
    with pytest.raises(InvalidInput, match="host_key: ") as refused:
        HostKey.parse(text)
    assert refused.value.field == "host_key"


def test_secrets_by_reference(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    assert resolve(f"file:{tmp_path / 'key'}") == "from a file\n"
    assert resolve("env:KEY", environment={"KEY": "from the environment"}) == "from the environment"
    assert resolve("credential:key", environment={"CREDENTIALS_DIRECTORY": str(tmp_path)}) == "from a file\n"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("env:KEY", "no such variable, or it is empty"),
        ("file:/no/such/file", "no such file"),
        ("file:/", "no such file"),
        ("file:", "file:PATH, env:NAME or credential:NAME"),
        ("hunter2", "file:PATH, env:NAME or credential:NAME"),
        ("credential:key", "systemd gave this process no credentials"),
        ("credential:../key", "file:PATH, env:NAME or credential:NAME"),
    ],
)
def test_a_reference_that_leads_nowhere_says_why(reference: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"key_ref: .*{why}"):
        resolve(reference, environment={"KEY": ""})


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\xfd", b"x" * 65537])
def test_a_file_that_holds_no_secret_is_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"key_ref: file:.*: the file is") as refused:
        resolve(f"file:{path}")
    assert len(str(refused.value)) < 400
