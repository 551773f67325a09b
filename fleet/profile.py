"""The profile: address and token of the service that this user works with, written by `fleet up`, read by every command."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.core.errors import InvalidInput, NotFound

_LIMIT_BYTES = 64 << 10


@dataclass(frozen=True)
class Profile:
    """`ca` is a file with the certificates to trust, None for those that this machine trusts anyway."""

    url: str
    token: str | None
    ca: str | None = None


def path(env: Mapping[str, str] = os.environ) -> Path:
    if chosen := env.get("FLEET_PROFILE"):
        return Path(chosen)
    return directory("XDG_CONFIG_HOME", ".config", env, "FLEET_PROFILE") / "profile.toml"


def directory(variable: str, usual: str, env: Mapping[str, str], other: str) -> Path:
    """Ours below the directory that XDG's `variable` names, else below `usual` in the home directory. Raises InvalidInput,
    naming the variable `other`, for a user without one."""
    try:
        return Path(env.get(variable) or Path.home() / usual) / "fleet"
    except RuntimeError:
        raise InvalidInput(f"this user has no home directory: set {other}, or HOME") from None


def read(file: Path) -> Profile | None:
    """None where there is no file. Raises InvalidInput for one that says something else than `url`, `token` and `ca`."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise InvalidInput(f"{file}: cannot be read: {exc.strerror}") from exc
    try:
        data = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"{file}: not TOML: {exc}") from exc
    if unknown := sorted(set(data) - {"url", "token", "ca"}):
        raise InvalidInput(f"{file}: {unknown[0]}: unknown key, a profile has url, token and ca")
    for key in ("url", "token", "ca"):
        if not isinstance(data.get(key, ""), str):
            raise InvalidInput(f"{file}: {key}: not a text")
    if not data.get("url"):
        raise InvalidInput(f"{file}: url: missing")
    return Profile(data["url"], data.get("token"), data.get("ca"))


def write(file: Path, profile: Profile) -> None:
    """Replace the file at once; nobody but its owner can read it at any moment."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        # JSON strings without surrogates are TOML strings
        stream.writelines(f"{key} = {json.dumps(value)}\n" for key, value in vars(profile).items() if value is not None)
    fresh.replace(file)


def resolve(url: str | None, token: str | None, ca: str | None = None, env: Mapping[str, str] = os.environ) -> Profile:
    """Options come before the environment, that before the profile file. The file's token is sent to the file's address
    only: another address needs its own token, and its own CA. Raises NotFound where no address is known, InvalidInput."""
    url, token = url or env.get("FLEET_URL") or None, token or env.get("FLEET_TOKEN") or None
    ca = ca or env.get("FLEET_CA") or None
    saved = None if url and token else read(path(env))
    if url is None and saved is None:
        raise NotFound(
            f"no service is known: there is no {path(env)}. Start one with `fleet up`, or give --url and --token "
            "(or FLEET_URL and FLEET_TOKEN)"
        )
    if saved is not None:
        same = url is None or url.rstrip("/") == saved.url.rstrip("/")
        url = url or saved.url
        token = token or (saved.token if same else None)
        ca = ca or (saved.ca if same else None)
    assert url is not None
    return Profile(url.rstrip("/"), token, ca)
