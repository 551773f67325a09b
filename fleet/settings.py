"""What a site decides, read once and frozen: a YAML or TOML file, the environment above it, the command line above both.

A key stands under its section; `worker.threads` is `FLEET_WORKER__THREADS` in the environment. Only `fleet.app` sees this
module: every part gets plain arguments."""

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from fleet import profile
from fleet.core.errors import InvalidInput

_LIMIT_BYTES = 256 << 10
_PREFIX = "FLEET_"


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EvidenceSettings(Section):
    """Raw outputs and logs of validations. `directory` None: `evidence` in the data directory."""

    directory: Path | None = None
    output_limit_mib: PositiveInt = Field(default=32, le=1024)
    log_limit_mib: PositiveInt = Field(default=1, le=64)


class WorkerSettings(Section):
    threads: PositiveInt = Field(default=8, le=1024)
    poll_s: PositiveFloat = Field(default=0.1, le=60)


class BudgetSettings(Section):
    """How many validations may run at once."""

    total: PositiveInt = 50
    per_rack: PositiveInt = 4
    per_power_feed: PositiveInt = 8


class ValidationSettings(Section):
    """Deadlines of phases; defaults allow for eight GPUs and a terabyte of memory."""

    default_plan: str = "standard"
    minimum_checks: frozenset[str] = frozenset({"gpu_inventory", "gpu_burn", "ib_links", "kernel_log"})
    place_deadline_s: PositiveFloat = 900
    boot_deadline_s: PositiveFloat = 600
    guest_silence_s: PositiveFloat = 180
    teardown_deadline_s: PositiveFloat = 900
    device_return_s: PositiveFloat = 60
    departure_deadline_s: PositiveFloat = 1800
    departure_poll_s: PositiveFloat = 5
    abort_retries_s: tuple[PositiveFloat, ...] = Field(default=(60, 300, 900), max_length=10)
    call_deadline_s: PositiveFloat = Field(default=10, le=10)  # an engine lease is 20 s: a call must end well within it
    host_look_s: PositiveFloat = 30
    sweep_s: PositiveFloat = 300


class FlavorSettings(Section):
    """The size of the test VM: that of the tenants' VMs on the same hardware."""

    vcpus: PositiveInt = 8
    memory_mib: PositiveInt = 16384
    hugepages: bool = False
    cpu: str = "host-passthrough"  # libvirt's cpu mode


class HypervisorSettings(Section):
    """The test VM, and how virsh is called. Paths are on the hosts; `template_directory` is on this machine."""

    image: str = "/var/lib/fleet/images/test.qcow2"
    image_format: Literal["raw", "qcow2"] = "qcow2"
    image_digest: str = ""
    kernel: str | None = None
    initrd: str | None = None
    cmdline: str = "root=/dev/vda console=ttyS0"
    flavor: FlavorSettings = FlavorSettings()
    flavors: dict[str, FlavorSettings] = {}  # by SKU, where it differs
    network: str = "fleet-test"  # libvirt network without a route to anywhere else
    template_directory: Path | None = None
    sudo: bool = False


class PlaybookSettings(Section):
    """Directories of the site's own, with `skus/` and `plans/`: a name in an earlier one hides it in a later one and in
    what is shipped."""

    directories: tuple[Path, ...] = ()


class SiteSettings(Section):
    """`observe` records verdicts, files no ticket and condemns nothing."""

    mode: Literal["enforce", "observe"] | None = None


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=_PREFIX, env_nested_delimiter="__")

    data_dir: Path = Field(default_factory=lambda: _home(os.environ))
    database: str | None = None
    """URL; None is a SQLite file in the data directory."""
    listen: str = "127.0.0.1:8470"
    evidence: EvidenceSettings = EvidenceSettings()
    worker: WorkerSettings = WorkerSettings()
    budgets: BudgetSettings = BudgetSettings()
    validation: ValidationSettings = ValidationSettings()
    hypervisor: HypervisorSettings = HypervisorSettings()
    playbooks: PlaybookSettings = PlaybookSettings()
    site: SiteSettings = SiteSettings()
    log: LogSettings = LogSettings()


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


def _home(env: Mapping[str, str]) -> Path:
    if chosen := env.get("FLEET_HOME"):
        return Path(chosen)
    return profile.directory("XDG_STATE_HOME", ".local/state", env, "FLEET_HOME")


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LIMIT_BYTES + 1)
    except OSError as exc:
        raise InvalidInput(f"{file}: cannot be read: {exc.strerror}", "config") from exc
    if len(raw) > _LIMIT_BYTES:
        raise InvalidInput(f"{file}: has more than {_LIMIT_BYTES >> 10} KiB", "config")
    try:
        if file.suffix == ".toml":
            return tomllib.loads(raw.decode())
        if file.suffix not in (".yaml", ".yml"):
            raise InvalidInput(f"{file}: settings are a .yaml or .toml file", "config")
        data = yaml.safe_load(raw)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"{file}: {exc}", "config") from exc
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise InvalidInput(f"{file}: is not a mapping of sections", "config")
    return data


def _refuse_unknown_sections(env: Mapping[str, str]) -> None:
    """FLEET_WORKRE__THREADS would pass unseen. Without `__` it may be another program's: FLEET_URL, FLEET_ROOT."""
    for name in env:
        section, nested, _ = name.removeprefix(_PREFIX).partition("__")
        if name.startswith(_PREFIX) and nested and section.lower() not in Settings.model_fields:
            raise InvalidInput(f"environment: {name}: unknown section{_near(section.lower(), Settings)}", name)


def _sentence(error: ErrorDetails, file: Path | None) -> str:
    keys = [str(part) for part in error["loc"]]
    variable = _PREFIX + "__".join(keys[:2]).upper()
    where = variable if variable in os.environ or file is None else f"{file}: {'.'.join(keys)}"
    if error["type"] != "extra_forbidden":
        return f"{where}: {error['msg']}"
    field = Settings.model_fields[keys[0]] if len(keys) > 1 else None
    owner = Settings if field is None else field.annotation
    assert isinstance(owner, type)
    return f"{where}: unknown key{_near(keys[-1], owner)}"


def _near(key: str, owner: type[BaseModel]) -> str:
    close = get_close_matches(key, owner.model_fields)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(owner.model_fields)}"
