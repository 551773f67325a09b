"""What a guest's first boot reads from its NoCloud seed disk: its host key and who may log in."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pycdlib
from pycdlib.pycdlibexception import PyCdlibException

_ISO_LIMIT, _FILE_LIMIT = 4 << 20, 64 << 10


class SeedRefused(Exception):
    """The seed cannot be used; cloud-init would go on without it, and nobody could log in."""


@dataclass(frozen=True)
class Seed:
    host_key_private: str
    login_keys: tuple[str, ...]


def read(path: Path) -> Seed:
    """Raises SeedRefused."""
    user_data = _file(path, "user-data")
    first, _, rest = user_data.partition("\n")
    if first.strip() != "#cloud-config":
        raise SeedRefused("user-data does not begin with #cloud-config")
    try:
        config: Any = json.loads(rest)
        host_key = config["ssh_keys"]["ed25519_private"]
        root = next(user for user in config["users"] if isinstance(user, dict) and user["name"] == "root")
        login_keys = root["ssh_authorized_keys"]
    except (ValueError, KeyError, TypeError, StopIteration):
        raise SeedRefused("user-data gives no ed25519 host key, or no login key for root") from None
    if not isinstance(host_key, str) or not login_keys or not all(isinstance(key, str) for key in login_keys):
        raise SeedRefused("user-data: the keys are not text")
    return Seed(host_key, tuple(login_keys))


def _file(path: Path, name: str) -> str:
    iso = pycdlib.PyCdlib()
    content = io.BytesIO()
    try:
        if path.stat().st_size > _ISO_LIMIT:
            raise SeedRefused(f"the seed is larger than {_ISO_LIMIT} bytes")
        iso.open(str(path))
    except (PyCdlibException, OSError) as exc:
        raise SeedRefused(f"the seed is no readable ISO 9660 image: {exc}") from None
    try:
        if iso.pvd.volume_identifier.decode("ascii", "replace").strip().lower() != "cidata":
            raise SeedRefused("the seed's volume is not labelled cidata")
        if iso.get_record(rr_path=f"/{name}").get_data_length() > _FILE_LIMIT:
            raise SeedRefused(f"{name} is larger than {_FILE_LIMIT} bytes")
        iso.get_file_from_iso_fp(content, rr_path=f"/{name}")
    except PyCdlibException as exc:
        raise SeedRefused(f"the seed has no {name}: {exc}") from None
    finally:
        iso.close()
    try:
        return content.getvalue().decode()
    except UnicodeDecodeError:
        raise SeedRefused(f"{name} is not UTF-8") from None
