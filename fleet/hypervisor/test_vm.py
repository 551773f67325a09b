"""The test VM of one validation: its names follow from the validation's id, its keys are made for it alone."""

import uuid
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fleet.core.errors import InvalidInput
from fleet.core.model import Machine, TestVm

SECRETS = ("host_key_private", "host_key_public", "login_key_private", "login_key_public")
_UUIDS = uuid.uuid5(uuid.NAMESPACE_URL, "https://fleet-revalidation.invalid/domain/1")


def make_test_vm(validation: str, machine: Machine) -> TestVm:
    """With new keys: make it once for a validation and keep `secrets_of` it."""
    host_private, host_public = make_key_pair()
    login_private, login_public = make_key_pair()
    return _named(
        validation, machine, dict(zip(SECRETS, (host_private, host_public, login_private, login_public), strict=True))
    )


def restore_test_vm(validation: str, machine: Machine, secrets: Mapping[str, str]) -> TestVm:
    """The same VM from what was kept. Raises InvalidInput when a key is missing."""
    if missing := [name for name in SECRETS if not secrets.get(name)]:
        raise InvalidInput(
            f"validation {validation}: the stored keys of its test VM lack {', '.join(missing)}", missing[0]
        )
    return _named(validation, machine, secrets)


def secrets_of(vm: TestVm) -> dict[str, str]:
    return {name: getattr(vm, name) for name in SECRETS}


def make_key_pair() -> tuple[str, str]:
    """An ed25519 pair: private in OpenSSH's PEM form, public as one line."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _named(validation: str, machine: Machine, secrets: Mapping[str, str]) -> TestVm:
    return TestVm(
        validation=validation,
        uuid=str(uuid.uuid5(_UUIDS, validation)),
        name=f"fleet-test-{validation}",
        machine=machine,
        **{name: secrets[name] for name in SECRETS},
    )
