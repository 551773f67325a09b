"""What a site decides, read once and frozen. `worker.threads` is `FLEET_WORKER__THREADS` in the environment. Only `fleet.app`
sees this package: every part gets plain arguments."""

from fleet.settings.load import load
from fleet.settings.sections import HookSettings, HypervisorSettings, NetworkSettings, ReceiverSettings, Settings

__all__ = ["HookSettings", "HypervisorSettings", "NetworkSettings", "ReceiverSettings", "Settings", "load"]
