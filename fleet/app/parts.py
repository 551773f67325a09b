"""The parts of the service, made from the settings. Every part gets plain arguments."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL

from fleet.app import lock
from fleet.core.errors import InvalidInput
from fleet.engine.claim import Budgets, release_leases
from fleet.engine.worker import Worker
from fleet.hooks.base import FewAtOnce, Hook
from fleet.hooks.command import CommandHook
from fleet.hooks.url import UrlHook
from fleet.hypervisor.inspector import Inspector
from fleet.hypervisor.libvirt import Libvirt
from fleet.hypervisor.site import Flavor, ImageSpec, Site
from fleet.hypervisor.test_vm import make_test_vm
from fleet.remote import secrets
from fleet.remote.ssh import SshPool
from fleet.service.lab import LabControl
from fleet.service.services import Services
from fleet.settings import HookSettings, HypervisorSettings, ReceiverSettings, Settings
from fleet.store.database import Database
from fleet.store.evidence import EvidenceFolder, EvidenceStore
from fleet.store.upgrade import upgrade
from fleet.webhook.receiver import Webhook
from fleet.workflows import delivery, inspection, retention, revalidation, sweep, vacancy, watchdog
from fleet.workflows.world import Policy, World
from playbooks.errors import PlaybookError
from playbooks.loader import SHIPPED, Library
from validators import CHECKS


def data_directory(settings: Settings) -> Path:
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings.data_dir.resolve()


@contextmanager
def database(settings: Settings, *, alone: bool) -> Iterator[Database]:
    """At this code's schema. `alone`: nobody else may work on the same SQLite file, and what was at work when the last
    process ended is free again. Raises Refused, StoreError, InvalidInput."""
    url = settings.database or _usual(data_directory(settings))
    db = Database(url, password=_password(settings.database_password_ref))
    with ExitStack() as stack:
        stack.callback(db.close)
        if db.is_sqlite:
            stack.enter_context(lock.held(Path(str(db.url.database)).absolute(), alone=alone))
        upgrade(db)
        if alone and db.is_sqlite:
            release_leases(db)
        yield db


def _password(reference: str | None) -> Callable[[], str] | None:
    """Raises InvalidInput where there is none now: that is when somebody reads why the service does not start."""
    if reference is None:
        return None

    def password() -> str:
        return secrets.resolve(reference, "database_password_ref").rstrip("\r\n")  # most files end in a newline

    password()
    return password


def _usual(directory: Path) -> URL:
    return URL.create("sqlite", database=str(directory / "fleet.sqlite"))  # in a text, `?` and `%` would mean something


def services(settings: Settings, db: Database, image: dict[str, Any], lab: LabControl | None = None) -> Services:
    return Services(
        db,
        evidence(settings),
        library(settings),
        settings.validation.default_plan,
        image,
        lab,
        two_person_rule=settings.site.two_person_rule,
        approval_expires_s=settings.site.approval_expires_s,
    )


@contextmanager
def world(settings: Settings, db: Database, hypervisor: HypervisorSettings, image: dict[str, Any]) -> Iterator[World]:
    """What the workflows work with; its connections are closed at the end."""
    rules, scheduler = settings.validation, settings.scheduler
    policy = Policy(
        **rules.model_dump(),
        withdrawal_deadline_s=Policy.withdrawal_deadline_s if scheduler is None else scheduler.deadline_s,
        output_limit_bytes=settings.evidence.output_limit_mib << 20,
        log_limit_bytes=settings.evidence.log_limit_mib << 20,
        validation_limit_bytes=settings.evidence.validation_limit_mib << 20,
        evidence_limit_bytes=int(settings.evidence.total_limit_gib * (1 << 30)),
        keep_days=_keep_days(settings),
        retention_s=settings.evidence.retention.round_s,
    )
    site = _site(hypervisor, start_deadline_s=int(rules.place_deadline_s))
    pool = SshPool()
    try:
        yield World(
            db,
            Libvirt(pool, site),
            library(settings),
            evidence(settings),
            make_test_vm,
            image,
            policy,
            hooks=tuple(FewAtOnce(hook(each), max(1, settings.worker.threads // 4)) for each in settings.hooks),
            scheduler=receiver(scheduler, "scheduler"),
            attention_hook=receiver(settings.attention, "attention"),
        )
    finally:
        pool.close()


@contextmanager
def inspector(settings: Settings, hypervisor: HypervisorSettings) -> Iterator[Inspector]:
    """With connections of its own: what a person asks for does not wait behind validations."""
    pool = SshPool()
    try:
        yield Inspector(pool, _site(hypervisor, start_deadline_s=int(settings.validation.place_deadline_s)))
    finally:
        pool.close()


@contextmanager
def working(
    settings: Settings, db: Database, hypervisor: HypervisorSettings, image: dict[str, Any]
) -> Iterator[Worker]:
    """A worker at work; at the end it takes nothing new and lets what runs come to its next phase."""
    with world(settings, db, hypervisor, image) as outside, inspector(settings, hypervisor) as looking:
        flows = [part.workflow(outside) for part in (revalidation, vacancy, sweep, watchdog, delivery, retention)]
        worker = Worker(
            db,
            [*flows, inspection.workflow(outside, looking)],
            threads=settings.worker.threads,
            poll_s=settings.worker.poll_s,
            budgets=Budgets(**settings.budgets.model_dump()),
        )
        with db.begin() as session:
            sweep.ensure(session)
            watchdog.ensure(session)
            delivery.ensure(session)
            retention.ensure(session)
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()


def library(settings: Settings) -> Library:
    """Raises InvalidInput for a directory, a plan or a check that there is not: no validation could ever pass."""
    rules = settings.validation
    if missing := [str(path) for path in settings.playbooks.directories if not path.is_dir()]:
        raise InvalidInput(f"playbooks.directories: {missing[0]} is not a directory", "playbooks.directories")
    if unknown := sorted(rules.minimum_checks - set(CHECKS)):
        raise InvalidInput(f"validation.minimum_checks: there is no check {unknown[0]!r}", "validation.minimum_checks")
    found = Library((*settings.playbooks.directories, SHIPPED))
    try:
        found.plan(rules.default_plan)
    except PlaybookError as exc:
        raise InvalidInput(f"validation.default_plan: {exc}", "validation.default_plan") from exc
    return found


def evidence(settings: Settings) -> EvidenceStore:
    """Raises InvalidInput for keys of a bucket that cannot be had."""
    rules = settings.evidence
    limit = rules.output_limit_mib << 20
    if (s3 := rules.s3) is None:
        root = rules.directory or data_directory(settings) / "evidence"
        return EvidenceFolder(root, limit, rules.reserve_mib << 20)
    from fleet.store.evidence.bucket import EvidenceBucket, connect

    def keys() -> tuple[str, str]:
        access = secrets.resolve(s3.access_key_ref, "evidence.s3.access_key_ref")
        return access.strip(), secrets.resolve(s3.secret_key_ref, "evidence.s3.secret_key_ref").strip()

    keys()  # now, where somebody reads why the service does not start
    client = connect(s3.endpoint, s3.region, keys, ca=s3.ca, connections=settings.worker.threads + 8)
    return EvidenceBucket(client, s3.bucket, s3.prefix, limit)


def _keep_days(settings: Settings) -> dict[str, float]:
    days = settings.evidence.retention
    return {"passed": days.passed_days, "aborted": days.aborted_days, "failed": days.failed_days}


def image(hypervisor: HypervisorSettings) -> dict[str, Any]:
    """What validations record of the test VM. `digest` is over the image's own digest and everything else that the VM is
    made from: another kernel or size is another test, which condemns nothing before it has passed."""
    made_from = hypervisor.model_dump(mode="json")
    text = json.dumps(made_from, sort_keys=True)
    return {**made_from, "digest": hashlib.sha256(text.encode()).hexdigest()}


def receiver(rules: ReceiverSettings | None, section: str) -> Webhook | None:
    """Raises InvalidInput where its secret cannot be had: nothing that is sent would be believed."""
    if rules is None:
        return None
    made = Webhook(rules.url, section, rules.secret_ref, rules.ca)
    made.check()
    return made


def hook(rules: HookSettings) -> Hook:
    if rules.url is not None:
        return UrlHook(rules.name, rules.url, rules.deadline_s, rules.secret_ref, rules.ca)
    return CommandHook(rules.name, rules.command or (), rules.deadline_s)


def _site(hypervisor: HypervisorSettings, start_deadline_s: int) -> Site:
    return Site(
        image=ImageSpec(
            hypervisor.image,
            hypervisor.image_format,
            hypervisor.kernel,
            hypervisor.initrd,
            hypervisor.cmdline,
        ),
        flavor=Flavor(**hypervisor.flavor.model_dump()),
        flavors={sku: Flavor(**flavor.model_dump()) for sku, flavor in hypervisor.flavors.items()},
        sudo=hypervisor.sudo,
        template_dir=hypervisor.template_directory,
        network=hypervisor.network,
        start_deadline_s=start_deadline_s,
    )
