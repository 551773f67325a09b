"""The seed disk: what a guest reads from it, and that the same VM gives the same bytes."""

import dataclasses
import io
import json
import time
from typing import Any

import paramiko
import pycdlib
import pytest

from fleet.core.errors import InvalidInput
from fleet.core.model import Machine, SshTarget, TestVm
from fleet.core.states import State
from fleet.hypervisor import seed
from fleet.hypervisor.test_vm import SECRETS, make_test_vm, restore_test_vm, secrets_of

MACHINE = Machine("m-01", "a100x8", State.VALIDATING, 1, 0.0, "", SshTarget("192.0.2.1", 22, "root", "", ""))


@pytest.fixture
def vm() -> TestVm:
    return make_test_vm("val-1", MACHINE)


def read(image: bytes, **path: str) -> bytes:
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(image))
    out = io.BytesIO()
    iso.get_file_from_iso_fp(out, **path)
    iso.close()
    return out.getvalue()


def document(image: bytes, name: str) -> Any:
    return json.loads(read(image, rr_path=f"/{name}").removeprefix(b"#cloud-config\n"))


def test_it_is_found_by_its_label_and_read_by_either_kind_of_long_name(vm: TestVm) -> None:
    image = seed.build(vm)
    assert image[16 * 2048 + 40 : 16 * 2048 + 46] == b"cidata"
    for name, content in seed.documents(vm).items():
        assert read(image, rr_path=f"/{name}") == read(image, joliet_path=f"/{name}") == content


def test_what_the_guest_is_told(vm: TestVm) -> None:
    image = seed.build(vm)
    user = document(image, "user-data")
    assert user["ssh_keys"] == {"ed25519_private": vm.host_key_private, "ed25519_public": vm.host_key_public}
    assert user["users"] == [{"name": "root", "lock_passwd": True, "ssh_authorized_keys": [vm.login_key_public]}]
    assert (user["ssh_pwauth"], user["disable_root"]) == (False, False)
    assert vm.login_key_private.encode() not in image
    assert document(image, "meta-data")["instance-id"] == vm.uuid
    network = document(image, "network-config")["ethernets"]["fleet0"]
    assert network == {"addresses": ["192.168.231.10/24"], "dhcp4": False, "match": {"macaddress": seed.mac_of(vm)}}


def test_the_same_vm_gives_the_same_bytes(vm: TestVm) -> None:
    first = seed.build(vm)
    time.sleep(1.1)  # the dates on a disk are whole seconds
    assert seed.build(vm) == first


@pytest.mark.parametrize("address", ["", "guest", "192.168.231.10/24", "1.2.3.4\nx"])
def test_a_guest_address_that_is_none_is_refused(vm: TestVm, address: str) -> None:
    machine = dataclasses.replace(MACHINE, guest_address=address)
    with pytest.raises(InvalidInput, match="m-01: guest_address"):
        seed.build(dataclasses.replace(vm, machine=machine))


def test_every_vm_has_keys_of_its_own_and_names_from_its_validation() -> None:
    one, again, other = make_test_vm("val-1", MACHINE), make_test_vm("val-1", MACHINE), make_test_vm("val-2", MACHINE)
    assert (one.uuid, one.name) == (again.uuid, again.name) == (one.uuid, "fleet-test-val-1")
    assert one.uuid != other.uuid
    assert len({getattr(vm, name) for vm in (one, again, other) for name in SECRETS}) == 12


def test_the_keys_are_a_pair_that_ssh_can_read(vm: TestVm) -> None:
    for private, public in ((vm.host_key_private, vm.host_key_public), (vm.login_key_private, vm.login_key_public)):
        key = paramiko.Ed25519Key.from_private_key(io.StringIO(private))
        assert public == f"ssh-ed25519 {key.get_base64()}"


def test_a_vm_comes_back_from_its_kept_keys(vm: TestVm) -> None:
    assert restore_test_vm("val-1", MACHINE, secrets_of(vm)) == vm
    with pytest.raises(InvalidInput, match="lack login_key_private"):
        restore_test_vm("val-1", MACHINE, {**secrets_of(vm), "login_key_private": ""})
