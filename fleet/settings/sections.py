"""Every key there is, by section, with its default. Units are in the names; a secret is a reference, resolved at use."""

import os
import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from fleet import profile

PREFIX = "FLEET_"


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_REFERENCE = r"^(file|env|credential):.+$"


class BucketSettings(Section):
    """A bucket of an S3-compatible store. Its keys are references, read at each request; `ca` is a file of certificates to
    trust instead of the system's. `prefix` keeps several sites in one bucket apart, and ends with a slash."""

    endpoint: str = Field(pattern=r"^https?://[^/\s]+/?$")
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*/)*$")
    region: str = "us-east-1"
    access_key_ref: str = Field(pattern=_REFERENCE)
    secret_key_ref: str = Field(pattern=_REFERENCE)
    ca: Path | None = None


class RetentionSettings(Section):
    """How long raw outputs are kept after a verdict. Those that an open ticket names stay until it is closed; verdicts,
    findings and numbers stay for ever."""

    passed_days: PositiveFloat = 90
    aborted_days: PositiveFloat = 180
    failed_days: PositiveFloat = 730
    round_s: PositiveFloat = 300


class EvidenceSettings(Section):
    """Raw outputs and logs of validations, in a folder or, with `s3`, in a bucket. `directory` None: `evidence` in the data
    directory. The limits are for one output, one log, all outputs of one test VM, and everything; `reserve_mib` of the
    folder's file system stay free for the database."""

    directory: Path | None = None
    s3: BucketSettings | None = None
    output_limit_mib: PositiveInt = Field(default=32, le=1024)
    log_limit_mib: PositiveInt = Field(default=1, le=64)
    validation_limit_mib: PositiveInt = 512
    total_limit_gib: PositiveFloat = 200
    reserve_mib: PositiveInt = 512
    retention: RetentionSettings = RetentionSettings()


class WorkerSettings(Section):
    """`listen`: where `fleet worker` shows its health and metrics, ADDRESS:PORT; nowhere if left out. `fleet up` shows them
    with the API."""

    threads: PositiveInt = Field(default=8, le=1024)
    poll_s: PositiveFloat = Field(default=0.1, le=60)
    listen: str | None = None


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
    evidence_patience_s: PositiveFloat = 600
    departure_poll_s: PositiveFloat = 5
    abort_retries_s: tuple[PositiveFloat, ...] = Field(default=(60, 300, 900), max_length=10)
    call_deadline_s: PositiveFloat = Field(default=10, le=10)  # an engine lease is 20 s: a call must end well within it
    host_look_s: PositiveFloat = 30
    sweep_s: PositiveFloat = 300
    watchdog_s: PositiveFloat = 60


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
    image_digest: str = Field(
        default="", pattern="^([0-9a-f]{64})?$"
    )  # SHA-256 of the file; a host that has another places no VM
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
    """`observe` records verdicts, files no ticket and condemns nothing. `two_person_rule`: override, retire and resume are
    asked for by one person and approved by another, within `approval_expires_s`."""

    mode: Literal["enforce", "observe"] | None = None
    two_person_rule: bool = False
    approval_expires_s: PositiveFloat = Field(default=86400, le=30 * 86400)


class NetworkSettings(Section):
    """How the API meets the network. `certificate` and `key` are PEM files, read again when they change; `url` and `ca` are
    for the profile of the user who starts the service: the address that the certificate names, and who signed it.
    `trusted_proxies` may say in X-Forwarded-For for whom they ask."""

    certificate: Path | None = None
    key: Path | None = None
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/]+/?$")
    ca: Path | None = None
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    connections: PositiveInt = 1000
    connections_per_address: PositiveInt = 200
    request_deadline_s: PositiveFloat = 30
    stalled_answer_s: PositiveFloat = 60


class RateSettings(Section):
    """Requests a minute, counted by each API process for itself."""

    per_token: PositiveInt = 12_000
    per_address: PositiveInt = 24_000
    failed_logins_per_address: PositiveInt = 30


class HookSettings(Section):
    """What the site is asked before a test VM is placed: a program on the worker's machine, or a service."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")
    command: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=64)
    url: str | None = Field(default=None, max_length=2000)
    secret_ref: str | None = None  # signs what is sent to the URL
    ca: Path | None = None
    deadline_s: PositiveFloat = Field(default=900, le=86400)

    @model_validator(mode="after")
    def _one_way_to_ask(self) -> "HookSettings":
        if (self.command is None) == (self.url is None):
            raise ValueError("has either a command or a url")
        if self.command is not None and not self.command[0].startswith("/"):
            raise ValueError(f"command: the program is named by its whole path, not {self.command[0]!r}")
        if self.command is not None and (self.secret_ref or self.ca):
            raise ValueError("secret_ref and ca belong to a url; a command reads its own secrets")
        if self.url is not None:
            _check_url(self.url)
        if self.secret_ref is not None and not re.fullmatch(_REFERENCE, self.secret_ref):
            raise ValueError("secret_ref: a secret is named by file:PATH, env:NAME or credential:NAME")
        return self


def _check_url(url: str) -> None:
    """A forged `200` would be a receipt: beyond this machine only TLS says who answers."""
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise ValueError("url: holds a login; name the secret by secret_ref")
    if not parts.hostname or (
        parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "::1", "localhost"))
    ):
        raise ValueError("url: is not https://HOST/... (http:// only to this machine)")


class ReceiverSettings(Section):
    """Where signed notices go: `secret_ref` names the secret that they are signed with, `ca` a file of certificates to
    trust instead of the system's."""

    url: str = Field(max_length=2000)
    secret_ref: str = Field(pattern=_REFERENCE)
    ca: Path | None = None

    @field_validator("url")
    @classmethod
    def _over_tls(cls, url: str) -> str:
        _check_url(url)
        return url


class SchedulerSettings(ReceiverSettings):
    """The provider's scheduler. `deadline_s`: how long a validation of a machine from the pool waits until the scheduler
    has acknowledged that it is out."""

    deadline_s: PositiveFloat = Field(default=600, le=86400)


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__")

    data_dir: Path = Field(default_factory=lambda: _home(os.environ))
    database: str | None = None
    """URL; None is a SQLite file in the data directory."""
    database_password_ref: str | None = Field(default=None, pattern=_REFERENCE)
    """Read at each connection. The URL itself must not have it: command lines can be seen by anybody."""
    listen: str = "127.0.0.1:8470"
    network: NetworkSettings = NetworkSettings()
    rates: RateSettings = RateSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    worker: WorkerSettings = WorkerSettings()
    budgets: BudgetSettings = BudgetSettings()
    validation: ValidationSettings = ValidationSettings()
    hypervisor: HypervisorSettings = HypervisorSettings()
    playbooks: PlaybookSettings = PlaybookSettings()
    site: SiteSettings = SiteSettings()
    log: LogSettings = LogSettings()
    hooks: tuple[HookSettings, ...] = ()
    scheduler: SchedulerSettings | None = None
    attention: ReceiverSettings | None = None
    """What tells people that something waits for them."""

    @field_validator("hooks")
    @classmethod
    def _names_once(cls, hooks: tuple[HookSettings, ...]) -> tuple[HookSettings, ...]:
        names = [hook.name for hook in hooks]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two hooks are named {min(twice)!r}")
        return hooks


def _home(env: Mapping[str, str]) -> Path:
    if chosen := env.get("FLEET_HOME"):
        return Path(chosen)
    return profile.directory("XDG_STATE_HOME", ".local/state", env, "FLEET_HOME")
