"""What a unit file says, read the way that systemd does where it matters here."""

import shlex
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "packaging" / "systemd"
NAMES = ("fleet-serve.service", "fleet-worker@.service")


@dataclass(frozen=True)
class Unit:
    settings: dict[str, list[str]]

    @classmethod
    def read(cls, name: str) -> "Unit":
        settings: dict[str, list[str]] = {}
        for line in (FOLDER / name).read_text().splitlines():
            if "=" in line and not line.startswith("#"):
                key, _, value = line.partition("=")
                settings.setdefault(key, []).append(value)
        return cls(settings)

    def one(self, key: str) -> str:
        (value,) = self.settings[key]
        return value

    def moved(self, key: str, places: dict[str, str]) -> list[str]:
        """The words of a setting, with paths of the system in other places."""
        text = " ".join(self.settings[key])
        for here, there in places.items():
            text = text.replace(here, there)
        return shlex.split(text)
