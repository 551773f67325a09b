"""Whether the service gets onto the host, and may do there what it has to."""

from collections.abc import Iterator, Sequence

from fleet.core.errors import FleetError
from fleet.core.model import Machine
from fleet.remote.knock import STEPS, Step
from fleet.workflows.prerequisites.row import Row, met, missing, not_tried

NAMES = {
    "connect": "ssh",
    "host_key": "host key",
    "login_key": "login key",
    "login": "login",
    "tunnel": "ssh forwarding",
}
SUDOERS = "{user} ALL=(root) NOPASSWD: /usr/bin/sh -c *"
"""The one rule that `hypervisor.sudo` needs (docs/first-host.md)."""


def rows(machine: Machine, steps: Sequence[Step]) -> Iterator[Row]:
    """Of a connection that was tried step by step."""
    tried = {step.name: step for step in steps}
    failed = next((NAMES[step.name] for step in steps if step.error), "an earlier step")
    for name in STEPS:
        step = tried.get(name)
        if step is None:
            yield not_tried(NAMES[name], f"{failed} is in its way")
        elif step.error is None:
            yield met(NAMES[name], _well(name, machine))
        else:
            yield missing(NAMES[name], step.error, _mend(name, machine))


def unrecorded() -> Iterator[Row]:
    for name in STEPS:
        yield not_tried(NAMES[name], "no SSH address is recorded")


def rights_not_tried(sudo: bool, why: str) -> Row:
    return not_tried("sudo" if sudo else "shell", why)


def rights(machine: Machine, sudo: bool, said: str | FleetError | None) -> Row:
    """`said`: None when scripts run as they have to, else what stood in the way."""
    name = "sudo" if sudo else "shell"
    how = "`sudo -n sh -c` runs" if sudo else "`sh -c` runs"
    if said is None:
        return met(name, f"{how} what the service sends")
    if isinstance(said, FleetError):
        return missing(name, str(said), "the login shell of this user must be a POSIX shell that runs what it is given")
    if sudo:
        rule = SUDOERS.format(user=machine.ssh.user)
        return missing(name, said, f"echo '{rule}' > /etc/sudoers.d/fleet && chmod 440 /etc/sudoers.d/fleet")
    return missing(
        name, said, f"usermod --shell /bin/sh {machine.ssh.user}, and nothing that prints in its profile files"
    )


def _well(name: str, machine: Machine) -> str:
    ssh = machine.ssh
    return {
        "connect": f"{ssh.address}:{ssh.port} speaks SSH",
        "host_key": f"it shows the pinned {ssh.host_key.partition(' ')[0]} key",
        "login_key": f"{ssh.key_ref} holds a key",
        "login": f"as {ssh.user}",
        "tunnel": f"sshd forwards to {machine.guest_address}:{machine.guest_port}, where the test VM will be",
    }[name]


def _mend(name: str, machine: Machine) -> str:
    ssh, guest = machine.ssh, f"{machine.guest_address}:{machine.guest_port}"
    return {
        "connect": (
            f"start sshd on the host and let the workers reach {ssh.address}:{ssh.port}; "
            f"try `ssh-keyscan -p {ssh.port} {ssh.address}` from a worker"
        ),
        "host_key": (
            "compare on the host's own console: `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`; "
            "if that is the one shown, import the key as `ssh.host_key` with --update"
        ),
        "login_key": (
            f"put an unencrypted private key where {ssh.key_ref or 'ssh.key_ref'} points, on every worker, "
            "readable by the service's user: `ssh-keygen -t ed25519 -N '' -f FILE`"
        ),
        "login": (
            f"on the host: add the public key to ~{ssh.user}/.ssh/authorized_keys "
            "(the file 600, its folder 700, both that user's)"
        ),
        "tunnel": (
            f"in /etc/ssh/sshd_config of the host `AllowTcpForwarding local` and `PermitOpen {guest}`, "
            f'in authorized_keys `restrict,port-forwarding,permitopen="{guest}"`; then `systemctl reload ssh`'
        ),
    }[name]
