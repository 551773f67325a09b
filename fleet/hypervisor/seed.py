"""The NoCloud seed: a small ISO that tells cloud-init (or a smaller init) the VM's keys and address. The same VM gives the
same bytes."""

import io
import ipaddress
import json

import pycdlib
from pycdlib.dates import DirectoryRecordDate

from fleet.core.errors import InvalidInput
from fleet.core.model import TestVm

_DATE = bytes([70, 1, 1, 0, 0, 0, 0])  # 1970-01-01 00:00:00, offset 0: pycdlib would write the time of day
_DESCRIPTORS = (16 * 2048, 17 * 2048)  # the volume descriptors of ISO 9660 and of Joliet; the dates in them are set at
_VOLUME_DATES = slice(813, 813 + 4 * 17)  # writing: creation, modification, expiration, effective


def mac_of(vm: TestVm) -> str:
    """In QEMU's range 52:54:00; the rest from the VM's uuid, so that it is the same at each placing."""
    tail = vm.uuid.replace("-", "")[-6:]
    return f"52:54:00:{tail[0:2]}:{tail[2:4]}:{tail[4:6]}"


def documents(vm: TestVm) -> dict[str, bytes]:
    """cloud-init reads YAML, and every JSON document is one: no quoting to get wrong."""
    user = {
        "disable_root": False,
        "ssh_pwauth": False,
        "ssh_deletekeys": True,
        "ssh_genkeytypes": [],
        "ssh_keys": {"ed25519_private": vm.host_key_private, "ed25519_public": vm.host_key_public},
        "users": [{"name": "root", "lock_passwd": True, "ssh_authorized_keys": [vm.login_key_public]}],
    }
    meta = {"instance-id": vm.uuid, "local-hostname": "fleet-test"}
    return {
        "user-data": b"#cloud-config\n" + _json(user),
        "meta-data": _json(meta),
        "network-config": _json(_network(vm)),
    }


def build(vm: TestVm) -> bytes:
    """The ISO: label `cidata`, the long names in Joliet and Rock Ridge. Raises InvalidInput for a bad guest address."""
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident="cidata")
    for number, (name, content) in enumerate(documents(vm).items()):
        iso.add_fp(io.BytesIO(content), len(content), f"/F{number}.;1", rr_name=name, joliet_path=f"/{name}")
    _stop_clock(iso)
    out = io.BytesIO()
    iso.write_fp(out)
    iso.close()
    image = bytearray(out.getvalue())
    for descriptor in _DESCRIPTORS:
        image[descriptor + _VOLUME_DATES.start : descriptor + _VOLUME_DATES.stop] = b"1970010100000000\0" * 4
    return bytes(image)


def _network(vm: TestVm) -> dict[str, object]:
    try:
        address = ipaddress.ip_address(vm.machine.guest_address)
    except ValueError as exc:
        raise InvalidInput(f"{vm.machine.name}: guest_address: {exc}", "guest_address") from None
    link = {
        "match": {"macaddress": mac_of(vm)},
        "dhcp4": False,
        "addresses": [f"{address}/{24 if address.version == 4 else 64}"],  # the host-only network; no gateway, no route
    }
    return {"version": 2, "ethernets": {"fleet0": link}}


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _stop_clock(iso: pycdlib.PyCdlib) -> None:
    for volume in filter(None, (iso.pvd, iso.joliet_vd)):
        for record in (volume.root_dir_record, *volume.root_dir_record.children):
            record.date = _date()
            if record.rock_ridge and (times := record.rock_ridge.dr_entries.tf_record):
                times.access_time = times.modification_time = times.attribute_change_time = _date()


def _date() -> DirectoryRecordDate:
    date = DirectoryRecordDate()
    date.parse(_DATE)
    return date
