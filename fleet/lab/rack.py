"""The simulated rack: all hosts of one directory, their state kept, their manifest written."""

import asyncio
import os
import secrets
from pathlib import Path
from typing import Any

import asyncssh

from fleet.core.errors import InvalidInput, NotFound
from fleet.lab import calls, hardware, manifest, processes, programs
from fleet.lab.control import Control
from fleet.lab.faults import rows
from fleet.lab.host import USER, Host, check_instance
from fleet.lab.places import Places, write_atomic
from fleet.lab.records import Records
from fleet.lab.virsh import Answer

_FIRST_TENANT = "tenant-1"
_IMAGE_BYTES = 1 << 20  # sparse; nothing ever boots from it


class Rack:
    def __init__(self, places: Places, machines: int, address: str) -> None:
        self._places, self._address, self._count = places, address, machines
        self._records = Records(places.state)
        self._hosts: dict[str, Host] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        places = self._places
        programs.link_system(places.programs)
        programs.write_host(places.host_bin)
        programs.write_wrong_clock(places.wrong_clock)
        with places.image.open("ab") as image:
            image.truncate(_IMAGE_BYTES)
        accepted = frozenset({_login_key(places.login_key).public_data})
        for number in range(1, self._count + 1):
            record, new = self._records.machine(number)
            host = Host(places, record, self._address, accepted, self._records.save)
            self._hosts[host.name] = host
            if new and number == 1:
                host.place(_FIRST_TENANT)
        self._server = await calls.listen(places.socket, self._call)
        control = Control(self, asyncio.get_running_loop(), self._address, self._records.control_port)
        self._records.control_port = control.port
        for host in self._hosts.values():
            host.start()
        self._records.save()
        control.start()
        self._write_manifest(control)

    async def stop(self) -> None:
        """The lab ends: every process in it goes, and the guests boot anew at the next start."""
        for host in self._hosts.values():
            host.stop()
        if self._server:
            self._server.close()
        processes.end({"LAB_SOCKET": str(self._places.socket)})
        self._places.socket.unlink(missing_ok=True)
        self._records.save()

    # --- for the control API

    def faults(self) -> list[dict[str, str]]:
        return rows()

    def machines(self) -> list[dict[str, Any]]:
        return [_row(host) for host in self._hosts.values()]

    def break_(self, machine: str, fault: str) -> dict[str, Any]:
        host = self._host(machine)
        host.break_(fault)
        return _row(host)

    def mend(self, machine: str, fault: str) -> dict[str, Any]:
        host = self._host(machine)
        host.mend(fault)
        return _row(host)

    def place(self, machine: str, instance: str) -> dict[str, Any]:
        host = self._host(machine)
        host.place(instance)
        return _row(host)

    def leave(self, machine: str, instance: str) -> dict[str, Any]:
        host = self._host(machine)
        host.leave(instance)
        return _row(host)

    def reconcile(self, tenants: dict[str, Any]) -> list[dict[str, Any]]:
        for machine, instances in tenants.items():
            self._host(machine)
            if not isinstance(instances, list) or not all(isinstance(i, str) for i in instances):
                raise InvalidInput(f"{machine}: a list of instance ids is expected", machine)
            for instance in instances:
                check_instance(instance)
        for machine, instances in tenants.items():
            self._host(machine).reconcile(instances)
        return self.machines()

    # --- parts

    async def _call(self, request: dict[str, Any]) -> Answer:
        host = self._hosts.get(request.get("host", ""))
        if host is None:
            return Answer("", "error: this host is not in the rack\n", 1)
        if "event" in request:
            host.happens(request["guest"], request["event"])
            return Answer()
        return await host.virsh(request["argv"], Path(request["cwd"]))

    def _host(self, machine: str) -> Host:
        try:
            return self._hosts[machine]
        except KeyError:
            names = ", ".join(self._hosts)
            raise NotFound(f"there is no machine {machine[:80]!r} in the rack; there are: {names}") from None

    def _write_manifest(self, control: Control) -> None:
        entries = []
        for host in self._hosts.values():
            record = host.record
            entries.append(
                manifest.MachineEntry(
                    name=host.name,
                    sku=hardware.SKU,
                    address=self._address,
                    port=record.port,
                    user=USER,
                    host_key=host.host_key.export_public_key().decode().strip(),
                    key_ref=f"file:{self._places.login_key}",
                    guest_address=self._address,
                    guest_port=record.guest_port,
                    scratch_disk=hardware.SCRATCH_DISK,
                    rack="lab-rack-1",
                    power_feed="A" if record.number % 2 else "B",
                    slots=tuple(vars(device) for device in host.chassis.devices),
                    instances=tuple(d.instance for d in record.domains if d.instance),
                )
            )
        reached = manifest.Control(control.url, control.secret)
        manifest.Manifest(os.getpid(), reached, str(self._places.image), tuple(entries)).write(self._places.manifest)


def _row(host: Host) -> dict[str, Any]:
    return {
        "name": host.name,
        "up": host.up,
        "boot_id": host.record.boot_id,
        "faults": list(host.record.faults),
        "domains": [
            {"uuid": d.uuid, "name": d.name, "state": "running", "instance": d.instance} for d in host.record.domains
        ],
    }


def _login_key(path: Path) -> asyncssh.SSHKey:
    if not path.exists():
        key = asyncssh.generate_private_key("ssh-ed25519", comment=f"simulated rack {secrets.token_hex(4)}")
        write_atomic(path, key.export_private_key())
        write_atomic(path.with_name(path.name + ".pub"), key.export_public_key())
    return asyncssh.read_private_key(str(path))
