"""Starting the service: everything at once (`up`), or the API and the workers apart. Each ends what it started, in order."""

import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import structlog

from fleet import profile
from fleet.api.app import create_probes
from fleet.app import admin, listening, logs, parts, rack, signals, supervisor, web
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
    ca: str | None
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
        logs.start(settings.log.level, data / "fleet.log", settings.log.format)
        db = stack.enter_context(parts.database(settings, alone=True))
        certificate = web.certificate(settings.network)
        bound = stack.enter_context(listening.bind(settings.listen, tls=certificate is not None, insecure=insecure))
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
        stack.enter_context(web.serving(web.api(settings, services), bound, settings.network, certificate))
        service = _announced(db, settings, bound, data / "fleet.log", lab)
        stack.enter_context(supervisor.told())
        then(service)
        Event().wait()


def serve(config: Path | None, flags: Mapping[str, Any], *, insecure: bool, then: Callable[[Service], None]) -> None:
    """The API alone; ends as `up` does."""
    settings = load(config, flags)
    logs.start(settings.log.level, form=settings.log.format)
    with signals.ending(), ExitStack() as stack:
        db = stack.enter_context(parts.database(settings, alone=False))
        certificate = web.certificate(settings.network)
        bound = stack.enter_context(listening.bind(settings.listen, tls=certificate is not None, insecure=insecure))
        _set_mode(db, settings)
        services = parts.services(settings, db, parts.image(settings.hypervisor))
        stack.enter_context(web.serving(web.api(settings, services), bound, settings.network, certificate))
        service = _announced(db, settings, bound, None, 0)
        stack.enter_context(supervisor.told())
        then(service)
        Event().wait()


def work(config: Path | None, flags: Mapping[str, Any]) -> None:
    """A worker alone; ends as `up` does."""
    settings = load(config, flags)
    logs.start(settings.log.level, form=settings.log.format)
    with signals.ending(), ExitStack() as stack:
        db = stack.enter_context(parts.database(settings, alone=False))
        _set_mode(db, settings)
        image = parts.image(settings.hypervisor)
        if settings.worker.listen is not None:
            bound = stack.enter_context(listening.bind(settings.worker.listen, insecure=False))
            stack.enter_context(
                web.serving(create_probes(parts.services(settings, db, image)), bound, settings.network)
            )
        worker = stack.enter_context(parts.working(settings, db, settings.hypervisor, image))
        stack.enter_context(supervisor.told())
        log.info("worker.up", worker=worker.name)
        Event().wait()


def _set_mode(db: Database, settings: Settings) -> None:
    if settings.site.mode is not None:
        with db.begin() as session:
            site.set_mode(session, settings.site.mode, admin.BY)


def _announced(db: Database, settings: Settings, bound: socket.socket, log_file: Path | None, lab: int) -> Service:
    """Write the profile of the user who started us: every later command finds the service by it."""
    file = profile.path()
    saved = profile.read(file)
    token = admin.token(db, None if saved is None else saved.token)
    if saved is not None and saved.token != token:
        file.replace(file.with_name(file.name + ".before"))  # it was of another service, whose token is nowhere else
    network = settings.network
    url = (network.url or listening.url(bound, tls=network.certificate is not None)).rstrip("/")
    ca = str(network.ca.absolute()) if network.ca is not None else None
    profile.write(file, Profile(url, token, ca))
    words = sys.argv[0]  # by a path, it is found from another terminal, which is elsewhere, by the whole of it
    command = shlex.quote(str(Path(words).absolute())) if "/" in words else "fleet"
    return Service(url, token, ca, file, command, log_file, lab)
