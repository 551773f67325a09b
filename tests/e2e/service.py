"""`fleet up` for the host of these tests: real processes, no simulated rack."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleet.hypervisor.site import Site
from tests.e2e.cable import Cable
from tests.e2e.host import HERE, Host
from tests.integration.rack.service import Service

LONG_S = 200.0  # a limit, not an expectation: the VM runs in software, beside whatever else the machine does


class RealService(Service):
    """Reaches `host` through `cable`."""

    def __init__(self, home: Path, site: Site, host: Host, cable: Cable) -> None:
        super().__init__(home, lab=0)
        self._host, self._cable = host, cable
        self._config = home / "fleet.yaml"
        home.mkdir()
        self._config.write_text(json.dumps(_settings(site)))

    def start(self, *more: str) -> None:
        super().start("--config", str(self._config), *more)

    def add(self, name: str, state: str, *instances: str) -> None:
        known = asdict(self._host.machine(name, self._cable.port))
        taken = ("name", "sku", "ssh", "slots", "guest_address", "guest_port", "scratch_disk")
        self.post("/v1/machines", {key: known[key] for key in taken} | {"state": state, "instances": instances})

    def reached(self, validation: str, phase: str) -> None:
        """Until it is in the phase, or past it; fails when it ends without."""

        def reached_or_over() -> bool:
            seen = self.validation(validation)
            return seen["verdict"] is not None or phase in {entry["phase"] for entry in seen["phases"]}

        self.until(reached_or_over, LONG_S, lambda: str(self.validation(validation)), every_s=0.03)
        seen = self.validation(validation)
        assert phase in {entry["phase"] for entry in seen["phases"]}, seen["reason"]

    def verdict(self, validation: str) -> Any:
        return self.settled(validation, LONG_S)


def _settings(site: Site) -> dict[str, Any]:
    return {
        "validation": {
            "default_plan": "e2e",
            "place_deadline_s": LONG_S,
            "boot_deadline_s": LONG_S,
            "teardown_deadline_s": LONG_S,
            "device_return_s": 5,
            "departure_poll_s": 0.5,
        },
        "hypervisor": {
            "image": site.image.path,
            "image_format": site.image.format,
            "kernel": site.image.kernel,
            "initrd": site.image.initrd,
            "cmdline": site.image.cmdline,
            "flavor": asdict(site.flavor),
            "template_directory": str(site.template_dir),
        },
        "evidence": {"output_limit_mib": 1},  # SSH encrypts slowly in there
        "playbooks": {"directories": [str(HERE / "site/playbooks")]},
        "site": {"mode": "enforce"},
    }
