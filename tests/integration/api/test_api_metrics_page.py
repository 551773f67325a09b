"""docs/metrics.md and /metrics name the same metrics with the same labels."""

import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from fleet.engine import meters
from fleet.store import attention

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def told() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(fleet_\w+)` \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def shown(api: Any) -> str:
    return str(api.http.get("/metrics").text)


def test_the_page_names_every_metric_and_no_other(api: Any) -> None:
    found = {line.split()[2] for line in shown(api).splitlines() if line.startswith("# HELP fleet_")}
    assert found == set(told())


def test_the_page_names_the_labels(api: Any) -> None:
    api.add("lab-01", "vacated")
    api.post("/v1/validations", {"machine": "lab-01"}, 202)
    with api.db.begin() as session:
        attention.need(session, "stuck", "lab-02", machine="lab-02", reason="r", next_step="n")
    meters.STEPS.labels("validation", "place", "done").inc()
    meters.STEP_S.labels("validation").observe(1.0)
    families = [f for f in text_string_to_metric_families(shown(api)) if f.name.startswith("fleet_") and f.samples]
    labels = {f.name + ("_total" if f.type == "counter" else ""): set(f.samples[0].labels) - {"le"} for f in families}
    page = told()
    assert len(labels) > 20
    assert labels == {name: page[name] for name in labels}
