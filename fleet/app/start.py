"""Starting the service: everything at once (`up`), or the API and the workers apart. Each ends what it started, in order."""

import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import structlog

from fleet import profile
from fleet.api.app import create_app
from fleet.app import admin, listening, logs, parts, rack, signals, web
from fleet.profile import Profile
from fleet.settings import Settings, load
from fleet.store import site
from fleet.store.database import Database

log = structlog.get_logger(__name__)

LAB_RULES: Mapping[str, Any] = {
    "validation": {
        "place_deadline_s": 20,
        "boot_deadline_s": 15,
        "guest_silence_s": 15,
        "teardown_deadline_s": 30,
        "device_return_s": 5,
        "departure_deadline_s": 60,
        "departure_poll_s": 1,
        "host_look_s": 3,
        "sweep_s": 20,
    },
    "site": {"mode": "enforce"},
}
"""A simulated rack does in a second what a real one takes minutes for; a fault in it should not take them either."""


@dataclass(frozen=True)
class Service:
    """What is up, for whoever is told: `command` is how this user calls `fleet`, `lab` the number of simulated machines,
    `log` None for standard error."""

    url: str
    token: str
    profile: Path
    command: str
    log: Path | None
    lab: int = 0


def up(
    config: Path | None, flags: Mapping[str, Any], *, lab: int, insecure: bool, then: Callable[[Service], None]
) -> None:
    """API and worker in this process, a rack of `lab` simulated machines beside it; `then` runs when all is up, and the
    service goes on after it. Returns after SIGTERM; raises KeyboardInterrupt after Ctrl-C, and FleetError where it cannot
    start."""
    settings = load(config, flags, LAB_RULES if lab else {})
    with signals.ending(), ExitStack() as stack:
        data = parts.data_directory(settings)
        logs.start(settings.log.level, data / "fleet.log")
        db = stack.enter_context(parts.database(settings, alone=True))
        bound = stack.enter_context(listening.bind(settings.listen, insecure=insecure))
        hypervisor, control = settings.hypervisor, None
        if lab:
            manifest = stack.enter_context(rack.running(data / "lab", lab))
            hypervisor, control = rack.hypervisor(hypervisor, manifest), rack.RackControl(rack.client(manifest))
            rack.register(db, manifest)
            rack.prove(db, parts.library(settings), manifest, parts.image(hypervisor))
            stack.enter_context(rack.tenants_following(db, manifest))
        _set_mode(db, settings)
        stack.enter_context(parts.working(settings, db, hypervisor, parts.image(hypervisor)))
        services = parts.services(settings, db, parts.image(hypervisor), control)
        stack.enter_context(web.serving(create_app(services), bound))
        then(_announced(db, listening.url(bound), data / "fleet.log", lab))
        Event().wait()


def serve(config: Path | None, flags: Mapping[str, Any], *, insecure: bool, then: Callable[[Service], None]) -> None:
    """The API alone; ends as `up` does."""
    settings = load(config, flags)
    logs.start(settings.log.level)
    with signals.ending(), ExitStack() as stack:
        db = stack.enter_context(parts.database(settings, alone=False))
        bound = stack.enter_context(listening.bind(settings.listen, insecure=insecure))
        _set_mode(db, settings)
        services = parts.services(settings, db, parts.image(settings.hypervisor))
        stack.enter_context(web.serving(create_app(services), bound))
        then(_announced(db, listening.url(bound), None, 0))
        Event().wait()


def work(config: Path | None, flags: Mapping[str, Any]) -> None:
    """A worker alone; ends as `up` does."""
    settings = load(config, flags)
    logs.start(settings.log.level)
    with signals.ending(), parts.database(settings, alone=False) as db:
        _set_mode(db, settings)
        with parts.working(settings, db, settings.hypervisor, parts.image(settings.hypervisor)) as worker:
            log.info("worker.up", worker=worker.name)
            Event().wait()


def _set_mode(db: Database, settings: Settings) -> None:
    if settings.site.mode is not None:
        with db.begin() as session:
            site.set_mode(session, settings.site.mode, admin.BY)


def _announced(db: Database, url: str, log_file: Path | None, lab: int) -> Service:
    """Write the profile of the user who started us: every later command finds the service by it."""
    file = profile.path()
    saved = profile.read(file)
    token = admin.token(db, None if saved is None else saved.token)
    if saved is not None and saved.token != token:
        file.replace(file.with_name(file.name + ".before"))  # it was of another service, whose token is nowhere else
    profile.write(file, Profile(url, token))
    words = sys.argv[0]  # by a path, it is found from another terminal, which is elsewhere, by the whole of it
    command = shlex.quote(str(Path(words).absolute())) if "/" in words else "fleet"
    return Service(url, token, file, command, log_file, lab)
