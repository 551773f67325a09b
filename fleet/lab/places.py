"""Where the lab keeps its files. Everything is under one directory, readable by its owner only."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GuestPlaces:
    """One test VM: `home` is what its root sees as home, `root` its /sys and /proc, `bin` its own tools, `scene` the file
    in which its tools read what they stand on."""

    base: Path

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def bin(self) -> Path:
        return self.base / "bin"

    @property
    def scene(self) -> Path:
        return self.base / "scene.json"


@dataclass(frozen=True)
class HostPlaces:
    """One host: `root` is its FLEET_ROOT, `state` its FLEET_STATE, `home` the login's."""

    base: Path

    @property
    def host_key(self) -> Path:
        return self.base / "host_key"

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def state(self) -> Path:
        return self.base / "state"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def guests(self) -> Path:
        return self.base / "guests"

    def guest(self, uuid: str) -> GuestPlaces:
        return GuestPlaces(self.guests / uuid)


@dataclass(frozen=True)
class Places:
    base: Path

    @property
    def manifest(self) -> Path:
        return self.base / "lab.json"

    @property
    def state(self) -> Path:
        return self.base / "state.json"

    @property
    def lock(self) -> Path:
        return self.base / "lock"

    @property
    def log(self) -> Path:
        return self.base / "lab.log"

    @property
    def socket(self) -> Path:
        return self.base / "lab.sock"

    @property
    def login_key(self) -> Path:
        return self.base / "login_key"

    @property
    def image(self) -> Path:
        return self.base / "image.raw"

    @property
    def programs(self) -> Path:
        """The machine's own programs, but those that would tell of the real machine."""
        return self.base / "bin" / "system"

    @property
    def host_bin(self) -> Path:
        return self.base / "bin" / "host"

    @property
    def wrong_clock(self) -> Path:
        return self.base / "wrong_clock"

    def host(self, name: str) -> HostPlaces:
        return HostPlaces(self.base / "machines" / name)


def write_atomic(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Whole or not at all: readers never see half of it."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.chmod(mode)
    new.replace(path)
