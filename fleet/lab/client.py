"""The rack's control API, for the service that runs beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from fleet.core.errors import InvalidInput, NotFound, Refused, Unreachable

_TIMEOUT_S = 10.0


class LabClient:
    """Every call takes at most ten seconds. Raises NotFound, InvalidInput, Refused, and Unreachable where no rack answers."""

    def __init__(self, url: str, secret: str) -> None:
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=_TIMEOUT_S, trust_env=False
        )

    def close(self) -> None:
        self._http.close()

    def faults(self) -> list[dict[str, Any]]:
        """Rows with name, title, expect (a verdict), where."""
        found: list[dict[str, Any]] = self._call("GET", "/faults")
        return found

    def machines(self) -> list[dict[str, Any]]:
        """Rows with name, up, boot_id, faults, domains."""
        found: list[dict[str, Any]] = self._call("GET", "/machines")
        return found

    def break_(self, machine: str, fault: str) -> dict[str, Any]:
        return self._row(f"/machines/{machine}/break", {"fault": fault})

    def mend(self, machine: str, fault: str) -> dict[str, Any]:
        return self._row(f"/machines/{machine}/mend", {"fault": fault})

    def place_tenant(self, machine: str, instance: str) -> dict[str, Any]:
        return self._row(f"/tenants/{machine}/place", {"instance": instance})

    def tenant_leaves(self, machine: str, instance: str) -> dict[str, Any]:
        """The tenant's domain goes within two seconds; one that is not there is fine."""
        return self._row(f"/tenants/{machine}/leave", {"instance": instance})

    def reconcile(self, tenants: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """Exactly these instances on the machines named, at once."""
        wanted = {machine: list(instances) for machine, instances in tenants.items()}
        rows: list[dict[str, Any]] = self._call("PUT", "/tenants", wanted)
        return rows

    def _row(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = self._call("POST", path, body)
        return row

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            response = self._http.request(method, path, json=body)
        except httpx.HTTPError as exc:
            raise Unreachable(f"the simulated rack does not answer at {self._http.base_url}: {exc}") from exc
        if response.status_code == httpx.codes.OK:
            return response.json()
        detail = _detail(response)
        if response.status_code == httpx.codes.NOT_FOUND:
            raise NotFound(detail)
        if response.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise InvalidInput(detail)
        raise Refused(f"the simulated rack refused: {detail}")


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {response.status_code}"
