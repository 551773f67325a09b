"""What the guest's measuring code read below /sys/class/infiniband: our own JSON, file texts verbatim."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from validators.tools.json_document import read

Text = Annotated[str, Field(max_length=200)]
_CODE = re.compile(r"\s*(\d{1,2}):\s*(\S.{0,60})")
_RATE = re.compile(r"\s*(\d{1,5}(?:\.\d{1,3})?) Gb/sec(?: \((\d{1,2})X(?: (\w{1,8}))?\))?")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class IbPort(_Model):
    device: Text
    port: Annotated[int, Field(ge=1, le=254)]
    pci: Text | None = None
    node_guid: Text | None = None
    port_guid: Text | None = None
    fw_ver: Text | None = None
    hca_type: Text | None = None
    state: Text | None = None
    phys_state: Text | None = None
    rate: Text | None = None
    link_layer: Text | None = None
    netdev: Text | None = None
    counters: Annotated[dict[Text, NonNegativeInt], Field(max_length=300)] = {}
    hw_counters: Annotated[dict[Text, NonNegativeInt], Field(max_length=300)] = {}
    errors: Annotated[dict[Text, Text], Field(max_length=700)] = {}

    @property
    def is_bond(self) -> bool:
        """A bond of Ethernet ports (`mlx5_bond_0`), management's and never a rail."""
        return "bond" in self.device.lower() or (self.netdev or "").startswith("bond")

    @property
    def rate_gbps(self) -> float | None:
        """400.0 out of "400 Gb/sec (4X NDR)"."""
        found = _RATE.match(self.rate or "")
        return float(found[1]) if found else None


class IbPorts(_Model):
    tool: Literal["ib_links"]
    error: Text | None = None
    ports: Annotated[tuple[IbPort, ...], Field(max_length=256)]


def parse(output: str) -> IbPorts:
    """Raises ParseError."""
    return read(IbPorts, output)


def code(text: str | None) -> int | None:
    """4 out of "4: ACTIVE"."""
    found = _CODE.match(text or "")
    return int(found[1]) if found else None
