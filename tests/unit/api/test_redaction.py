"""What an audit entry keeps of a refused request."""

import json

import pytest

from fleet.api.redaction import KEPT_BYTES, kept

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\ngeheim\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "body",
    [
        {"ssh": {"key_ref": KEY}},
        {"ssh": {"key_ref": "geheim"}},
        {"ssh": {"password": 'a"geheim'}},
        {"bmc_password": "geheim"},
        {"reason": f"the key is {KEY}"},
        {"reason": "x" * 1950 + KEY},  # it is cut within the key
        {"reason": "use flt_geheim4711 for it"},
    ],
)
def test_secrets_are_left_out(body: dict[str, object]) -> None:
    said = kept(json.dumps(body).encode())
    assert "geheim" not in said
    assert "(not kept)" in said


def test_all_else_is_kept() -> None:
    body = json.dumps({"name": "a", "ssh": {"key_ref": "file:/etc/fleet/key"}, "reason": 'the "token" ring'})
    assert kept(body.encode()) == body
    assert kept(b"\xff" + b"x" * 9000) == "�" + "x" * (KEPT_BYTES - 1)
