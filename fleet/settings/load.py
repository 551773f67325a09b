"""Reading the settings: a YAML or TOML file, the environment above it, the command line above both."""

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from fleet.core.errors import InvalidInput
from fleet.settings.sections import PREFIX, Settings
from playbooks import strict_yaml
from playbooks.errors import PlaybookError

_LIMIT_BYTES = 256 << 10


def load(
    file: Path | None = None, flags: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
) -> Settings:
    """Flags come before the environment, that before the file, that before `defaults`, which stand for those written here.
    Raises InvalidInput that names source and key."""
    written = {} if file is None else _read(file)
    _refuse_unknown_sections(os.environ)

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            given = (InitSettingsSource(settings_cls, dict(layer)) for layer in (written, defaults or {}))
            return init_settings, env_settings, *given

    try:
        return Layered(**(flags or {}))
    except ValidationError as exc:
        raise InvalidInput("\n".join(_sentence(error, file) for error in exc.errors()), "config") from exc
    except ValueError as exc:  # pydantic-settings: a list or mapping in the environment that is not JSON
        raise InvalidInput(f"environment: {exc}") from exc


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LIMIT_BYTES + 1)
    except OSError as exc:
        raise InvalidInput(f"{file}: cannot be read: {exc.strerror}", "config") from exc
    if len(raw) > _LIMIT_BYTES:
        raise InvalidInput(f"{file}: has more than {_LIMIT_BYTES >> 10} KiB", "config")
    try:
        text = raw.decode()
        if file.suffix == ".toml":
            return tomllib.loads(text)
        if file.suffix not in (".yaml", ".yml"):
            raise InvalidInput(f"{file}: settings are a .yaml or .toml file", "config")
        if all(line.split("#")[0].strip() == "" for line in text.splitlines()):
            return {}
        return strict_yaml.load(text, str(file)).content
    except PlaybookError as exc:
        raise InvalidInput(str(exc), "config") from exc
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"{file}: is not UTF-8 text (byte {exc.start})", "config") from exc
    except tomllib.TOMLDecodeError as exc:
        raise InvalidInput(f"{file}: {exc}", "config") from exc


def _refuse_unknown_sections(env: Mapping[str, str]) -> None:
    """FLEET_WORKRE__THREADS would pass unseen. Without `__` it may be another program's: FLEET_URL, FLEET_ROOT."""
    for name in env:
        section, nested, _ = name.removeprefix(PREFIX).partition("__")
        if name.startswith(PREFIX) and nested and section.lower() not in Settings.model_fields:
            raise InvalidInput(f"environment: {name}: unknown section{_near(section.lower(), Settings)}", name)


def _sentence(error: ErrorDetails, file: Path | None) -> str:
    keys = [str(part) for part in error["loc"]]
    variables = [PREFIX + "__".join(keys[:depth]).upper() for depth in range(len(keys), 0, -1)]
    named = next((variable for variable in variables if variable in os.environ), variables[0] if file is None else None)
    where = named or f"{file}: {'.'.join(keys)}"
    if error["type"] != "extra_forbidden":
        return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    return f"{where}: unknown key{_near(keys[-1], _section(keys[:-1]))}"


def _section(keys: list[str]) -> type[BaseModel]:
    """The model that the keys lead to, as far as they do: a list or a mapping in between is the end of the way."""
    owner: type[BaseModel] = Settings
    for key in keys:
        field = owner.model_fields.get(key)
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is None:
            break
        owner = inner
    return owner


def _near(key: str, owner: type[BaseModel]) -> str:
    close = get_close_matches(key, owner.model_fields)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(owner.model_fields)}"
