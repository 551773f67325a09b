"""The shapes of names that reach a shell, an XML file or a terminal, and what each is called when something else comes."""

from collections.abc import Mapping

MACHINE = r"^[a-z0-9][a-z0-9.-]{0,62}$"
INSTANCE = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
RECORD = r"^[a-z]{2,8}-[a-z0-9-]{1,60}$"
SKU = r"^[a-z0-9][a-z0-9._-]{0,62}$"
PLAN = r"^[a-z][a-z0-9_-]{0,63}$"
WORD = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$"
MEASUREMENT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
ACTION = r"^[a-z._]{1,64}$"
FAULT = r"^[a-z][a-z0-9-]{0,63}$"
PCI = r"^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$"
GUID = r"^(0x)?[0-9a-fA-F:]{16,23}$"
DISK = r"^/dev/[A-Za-z0-9._:/-]{1,120}$"
ADDRESS = r"^[A-Za-z0-9:][A-Za-z0-9.:-]{0,252}$"
USER = r"^[a-z_][a-z0-9_-]{0,31}$"
HOST_KEY = r"^(ssh-|ecdsa-sha2-)[a-z0-9-]{3,20} [A-Za-z0-9+/]{40,2000}={0,3}$"
SECRET = (
    r"^(file:/[A-Za-z0-9._/@+-]{1,300}|env:[A-Za-z_][A-Za-z0-9_]{0,63}|credential:[A-Za-z0-9_][A-Za-z0-9._-]{0,99})$"
)

WORDS: Mapping[str, str] = {
    MACHINE: "a machine's name, such as gpu-017: small letters, digits, dots and dashes, at most 63",
    INSTANCE: "an instance's id, such as vm-42: letters, digits and . _ : - without spaces, at most 128",
    RECORD: "an id, such as val-01m8q4nzmz-j07cj5; `list` shows those that there are",
    SKU: "the name of a SKU, such as h100-sxm5x8: small letters, digits and . _ -",
    PLAN: "the name of a plan, such as standard: small letters, digits, _ and -",
    WORD: "one word, such as r12 or leaf-01/25: letters, digits and . _ : / @ + - without spaces, at most 128",
    MEASUREMENT: "the name of a log, such as gpu_burn; `fleet validation logs ID` lists them",
    ACTION: "an action, such as machine.held, or the start of one, such as `machine.`",
    FAULT: "the name of a fault, such as rail-down; `fleet lab faults` lists them",
    PCI: "a PCI address, such as 0000:1b:00.0",
    GUID: "a port's GUID, such as b83f:d203:0001:0000",
    DISK: "a disk, such as /dev/vdb",
    ADDRESS: "an address, such as 10.0.4.17 or gpu-017.internal",
    USER: "a login name, such as fleet",
    HOST_KEY: "the whole public key of a host, such as `ssh-ed25519 AAAAC3Nz...`, without a comment after it",
    SECRET: "where a secret is: file:/PATH, env:NAME or credential:NAME, never the secret itself",
}
"""What follows "is not"."""
