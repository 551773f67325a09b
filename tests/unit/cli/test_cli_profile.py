import stat

import pytest

from fleet import profile
from fleet.core.errors import InvalidInput, NotFound
from fleet.profile import Profile


def _env(tmp_path, **more):
    return {"FLEET_PROFILE": str(tmp_path / "profile.toml"), **more}


def test_options_come_before_the_environment_before_the_file(tmp_path):
    profile.write(tmp_path / "profile.toml", Profile("http://file:1", "in-file"))
    env = _env(tmp_path, FLEET_URL="http://env:1", FLEET_TOKEN="in-env")
    assert profile.resolve("http://opt:1", "in-opt", env=env) == Profile("http://opt:1", "in-opt")
    assert profile.resolve(None, None, env=env) == Profile("http://env:1", "in-env")
    assert profile.resolve(None, None, env=_env(tmp_path)) == Profile("http://file:1", "in-file")
    assert profile.resolve(None, "in-opt", env=_env(tmp_path)) == Profile("http://file:1", "in-opt")


def test_the_files_token_goes_to_the_files_address_only(tmp_path):
    profile.write(tmp_path / "profile.toml", Profile("http://file:1", "in-file"))
    assert profile.resolve("http://file:1/", None, env=_env(tmp_path)) == Profile("http://file:1", "in-file")
    assert profile.resolve("http://other:1", None, env=_env(tmp_path)) == Profile("http://other:1", None)


def test_a_profile_is_its_owners_only_and_survives_odd_text(tmp_path):
    file = tmp_path / "deep" / "er" / "profile.toml"
    odd = Profile("http://x:1", 'quo"te\\ \x07 é')
    profile.write(file, odd)
    profile.write(file, odd)
    assert profile.read(file) == odd
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["profile.toml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('url = "http://x"\ntokn = "a"\n', "tokn: unknown key"),
        ('token = "a"\n', "url: missing"),
        ("url = 5\n", "url: not a text"),
        ("url\n", "not TOML"),
        ("\xff", "not TOML"),
    ],
)
def test_a_broken_profile_is_named_with_its_key(tmp_path, text, said):
    file = tmp_path / "profile.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match=said) as caught:
        profile.read(file)
    assert str(file) in str(caught.value)


def test_without_any_address_the_command_says_how_to_get_one(tmp_path):
    with pytest.raises(NotFound, match="fleet up"):
        profile.resolve(None, None, env=_env(tmp_path))
    assert profile.read(tmp_path / "profile.toml") is None


def test_address_and_token_need_no_home(monkeypatch):
    monkeypatch.setenv("HOME", "~")  # as for a user whom no password file knows
    assert profile.resolve("http://opt:1", "in-opt", env={}) == Profile("http://opt:1", "in-opt")
    with pytest.raises(InvalidInput, match="set FLEET_PROFILE, or HOME"):
        profile.resolve("http://opt:1", None, env={})


def test_the_profile_follows_xdg():
    assert str(profile.path({"XDG_CONFIG_HOME": "/x"})) == "/x/fleet/profile.toml"
