"""`fleet machine`: the fleet's records, and taking machines in and out of automation."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import approval, duration, follow, session
from fleet.cli.exits import CommandError, Exit
from fleet.cli.output import Column, Row, print_details, print_table, say, time

app = session.noun("Machines of the fleet.")

Name = Annotated[str, typer.Argument(metavar="MACHINE")]

Instance = Annotated[str, typer.Option("--instance", metavar="ID", help="The tenant's VM.")]

COLUMNS: tuple[Column, ...] = (
    ("NAME", "name"),
    ("STATE", "state"),
    ("SINCE", lambda row: time(row.get("since"))),
    ("SKU", "sku"),
    ("INSTANCES", lambda row: _instances(row)),
    ("HOLD", lambda row: (row.get("hold") or {}).get("owner")),
    ("WHY", "why"),
)
_SLOTS: tuple[Column, ...] = tuple(
    (name.upper().replace("_", " "), name)
    for name in ("slot", "kind", "pci", "guest_pci", "serial", "guid", "switch_port")
)


@app.command("list")
def list_(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", help="available, allocated, vacated, validating, failed or retired.")
    ] = None,
    machine: session.OfMachine = None,
    limit: session.Limit = None,
    cursor: session.Cursor = None,
) -> None:
    """All machines, by name."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/machines", {"state": state, "machine": machine}, limit, cursor)
    here.answer_list(page, COLUMNS, "No machines.")


@app.command()
def show(context: typer.Context, machine: Name) -> None:
    """One machine: state, who is on it, who holds it, its devices."""
    here = session.of(context)
    with here.connect() as client:
        found = client.get(f"/v1/machines/{session.segment(machine)}")
    here.answer(found, lambda: _print(found))


@app.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    sku: Annotated[str, typer.Option("--sku", help="Hardware type, a file in playbooks/skus.")],
    address: Annotated[
        str | None, typer.Option("--address", help="Of the host's SSH server; NAME if left out.")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535)] = None,
    user: Annotated[str | None, typer.Option("--user", help="SSH login on the host.")] = None,
    host_key: Annotated[
        str | None,
        typer.Option("--host-key", help="The host's public key, 'ssh-ed25519 AAAA...': nothing else is let in."),
    ] = None,
    key_ref: Annotated[
        str | None,
        typer.Option(
            "--key-ref", help="Where the login key is: file:PATH, env:NAME or credential:NAME on the workers' side."
        ),
    ] = None,
    rack: Annotated[str | None, typer.Option("--rack")] = None,
    power_feed: Annotated[str | None, typer.Option("--power-feed")] = None,
    capacity: Annotated[int | None, typer.Option("--capacity", min=1, help="Tenant instances it can carry.")] = None,
    guest_address: Annotated[
        str | None, typer.Option("--guest-address", help="Of the test VM, seen from the host.")
    ] = None,
    guest_port: Annotated[int | None, typer.Option("--guest-port", min=1, max=65535)] = None,
    scratch_disk: Annotated[
        str | None, typer.Option("--scratch-disk", help="Disk in the test VM that the storage check may overwrite.")
    ] = None,
    slots: Annotated[Path | None, typer.Option("--slots", help="YAML or JSON file with the slot map.")] = None,
    state: Annotated[str | None, typer.Option("--state", help="What you vouch for: available or allocated.")] = None,
    instance: Annotated[
        list[str] | None, typer.Option("--instance", metavar="ID", help="Who is on an allocated machine. Repeatable.")
    ] = None,
) -> None:
    """Add one machine. Without --state it starts vacated: not offered to anybody until it has passed."""
    from fleet.cli import machine_file

    here = session.of(context)
    login = {"address": address, "port": port, "user": user, "host_key": host_key, "key_ref": key_ref}
    ssh = {k: v for k, v in login.items() if v is not None}
    body: dict[str, Any] = {
        "name": name,
        "sku": sku,
        "ssh": {"address": name, **ssh} if ssh else None,
        "rack": rack,
        "power_feed": power_feed,
        "capacity": capacity,
        "guest_address": guest_address,
        "guest_port": guest_port,
        "scratch_disk": scratch_disk,
        "slots": machine_file.slots(slots) if slots else None,
        "state": state,
        "instances": instance,
    }
    with here.connect() as client:
        made = client.post("/v1/machines", {k: v for k, v in body.items() if v})
    here.answer(made, lambda: say(f"{name} is in the fleet, {made['state']}."))


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML, JSON or CSV, a machine a row.")],
    update: Annotated[
        bool, typer.Option("--update", help="Machines that exist get the file's address, devices and place.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is wrong with the file.")] = False,
) -> None:
    """Add every machine of a file, or none of them: one bad row stops all, and every bad row is listed."""
    from fleet.cli import machine_file

    here = session.of(context)
    found = machine_file.read(file)
    if not found.placed:
        raise found.refused()
    only_look = {"dry_run": True} if dry_run or found.errors else {}
    try:
        with here.connect() as client:
            done = client.post("/v1/machines/import", {"machines": found.rows, "update": update, **only_look})
    except CommandError as exc:
        if found.errors or machine_file.bad_rows(exc.document):
            raise found.refused(exc.document) from exc
        raise
    if found.errors:
        raise found.refused()
    said = "the file is good" if dry_run else f"machines added: {done['added']}, updated: {done['updated']}"
    here.answer(done, lambda: say(f"{said}."))


@app.command()
def check(context: typer.Context, machine: Name) -> None:
    """Try every prerequisite of a validation on the host, whoever is on it; switches nothing. Exit status 0: all are met."""
    from fleet.cli import inspection

    raise typer.Exit(inspection.check(session.of(context), machine))


@app.command()
def discover(context: typer.Context, machine: Name) -> None:
    """Propose the machine's record from what its host shows, as YAML that `import --update` takes."""
    from fleet.cli import inspection

    raise typer.Exit(inspection.discover(session.of(context), machine))


@app.command()
def hold(
    context: typer.Context,
    machine: Name,
    reason: session.Reason,
    lock_power: Annotated[
        bool, typer.Option("--lock-power", help="Nothing may switch its power: hands inside.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="End a running validation too; it goes on otherwise.")] = False,
    expires: duration.Expires = None,
) -> None:
    """Stop automation on a machine: nothing starts by itself, and it cannot be claimed."""
    body: dict[str, Any] = {"reason": reason, "lock_power": lock_power, "abort": abort}
    _change(context, machine, "hold", body | ({"expires_in_s": expires} if expires else {}), "is held")


@app.command()
def unhold(context: typer.Context, machine: Name) -> None:
    """Give a held machine back to automation."""
    _change(context, machine, "unhold", {}, "is no longer held")


@app.command()
def withdraw(context: typer.Context, machine: Name, reason: session.Reason) -> None:
    """Take an available machine out of the pool and hold it."""
    _change(context, machine, "withdraw", {"reason": reason}, "is out of the pool")


@app.command()
def retire(context: typer.Context, machine: Name, reason: session.Reason) -> int:
    """Take a machine out of the fleet for good. Refused while a validation is open."""
    here = session.of(context)
    with here.connect() as client:
        done = client.post(f"/v1/machines/{session.segment(machine)}/retire", {"reason": reason})
    return approval.answer_act(here, done, f"{machine} is retired.")


@app.command()
def claim(context: typer.Context, machine: Name, instance: Instance) -> None:
    """Take an available machine for a tenant's instance: what the scheduler does before it places one."""
    _change(context, machine, "claim", {"instance": instance}, f"is allocated to {instance}")


@app.command()
def override(
    context: typer.Context,
    machine: Name,
    instance: Instance,
    reason: session.Reason,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for a validation that is ended first.")] = False,
) -> int:
    """Give a machine that is out of the pool to a tenant all the same. A running validation is ended first."""
    here, path = session.of(context), f"/v1/machines/{session.segment(machine)}"
    with here.connect() as client:
        done = client.post(f"{path}/override", {"instance": instance, "reason": reason})
        while wait and done.get("open_validation"):
            ending = done["open_validation"]
            try:
                follow.until_settled(client, client.get(f"/v1/validations/{session.segment(ending)}"), quiet=here.json)
            except KeyboardInterrupt:
                said = f"no longer waited for: {ending} is being ended, and {machine} is not given away before you say it again"
                raise CommandError(said, Exit.INTERRUPTED) from None
            done = client.post(f"{path}/override", {"instance": instance, "reason": reason})
    if ending := done.get("open_validation"):
        here.answer(
            done, lambda: say(f"Validation {ending} is being ended; say it again when it is over, or use --wait.")
        )
        return Exit.NOT_SETTLED
    return approval.answer_act(here, done, f"{machine} is allocated to {instance}, which nothing has validated it for.")


def _change(context: typer.Context, machine: str, verb: str, body: dict[str, Any], said: str) -> None:
    here = session.of(context)
    with here.connect() as client:
        row = client.post(f"/v1/machines/{session.segment(machine)}/{verb}", body)
    here.answer(row, lambda: say(f"{machine} {said}."))


def _instances(row: Row) -> str:
    return ", ".join(f"{i.get('id')} ({i.get('kind')})" for i in row.get("instances") or ())


def _print(row: Row) -> None:
    hold = row.get("hold") or {}
    print_details(
        [
            *((name, row.get(name)) for name in ("name", "sku", "state", "since", "why", "version")),
            ("instances", _instances(row)),
            ("validation", row.get("open_validation")),
            ("hold", f"{hold.get('owner')} since {hold.get('since')}: {hold.get('reason')}" if hold else None),
            ("hold ends", hold.get("expires_at")),
            ("power locked", "yes" if hold.get("lock_power") else None),
            ("ssh", "{user}@{address}:{port}".format_map(row["ssh"]) if row.get("ssh") else None),
            *((name, row.get(name)) for name in ("rack", "power_feed", "capacity", "scratch_disk", "handed_over_at")),
        ]
    )
    if row.get("slots"):
        say("")
        print_table(row["slots"], _SLOTS, "")
