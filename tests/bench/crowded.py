"""The database of a large provider after some years: 10,000 machines with 100,000 validations and what comes with them, made by
PostgreSQL itself, so that filling takes seconds. Old rows are many and open ones few, as they would be; `BUSY` is a machine
with a long story, and rare words are in it too, which a list has to look far for."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from fleet.core.model import Slot, SlotKind
from fleet.store.database import Database
from fleet.store.postgresql import take_time
from fleet.workflows.playbook import Playbook
from playbooks.loader import SHIPPED, Library

MACHINES = 10_000
VALIDATIONS = 100_000
OPEN = 500
BUSY = "gpu-00042"
QUIET = "gpu-09999"
YEAR_S = 365 * 86400
SKU = "h100-sxm5x8"

_GIVEN = """
CREATE TEMPORARY TABLE g AS SELECT CAST(:now AS float) AS now, CAST(:year AS float) AS year, CAST(:machines AS int) AS machines,
    CAST(:validations AS int) AS validations, CAST(:open AS int) AS open, CAST(:sku AS text) AS sku, CAST(:ssh AS json) AS ssh,
    CAST(:slots AS json) AS slots, CAST(:playbook AS json) AS playbook, CAST(:phases AS json) AS phases,
    CAST(:progress AS json) AS progress;
CREATE FUNCTION pg_temp.gpu(n bigint) RETURNS text LANGUAGE sql AS $$ SELECT 'gpu-' || lpad(n::text, 5, '0') $$;
CREATE FUNCTION pg_temp.id(noun text, n bigint) RETURNS text LANGUAGE sql AS $$ SELECT noun || '-' || lpad(n::text, 8, '0') $$;
CREATE FUNCTION pg_temp.some(n bigint, all_ bigint) RETURNS text LANGUAGE sql AS  -- every fiftieth is the busy one's
    $$ SELECT pg_temp.gpu(CASE WHEN n % 50 = 0 THEN 42 ELSE n * 7919 % all_ END) $$"""

_ROWS = """
INSERT INTO site (id, mode, data) VALUES (1, 'enforce', '{}');

INSERT INTO machine (name, sku, state, version, state_since, state_why, ssh, slots, guest_address, guest_port, rack,
    power_feed, capacity, vacated_because, created_at)
SELECT pg_temp.gpu(n), sku,
    CASE WHEN n < open THEN 'validating' WHEN n < 700 THEN 'failed' WHEN n < 760 THEN 'vacated' WHEN n < 800 THEN 'retired'
         WHEN n % 3 = 0 THEN 'available' ELSE 'allocated' END,
    20, now - n, 'instance vm-' || n || ' placed', ssh, slots, '10.200.0.2', 22, 'r' || n / 20, 'F' || n / 40, 1, '{}',
    now - 3 * year
FROM g, generate_series(0, machines - 1) AS n;

INSERT INTO instance (machine, id, kind, since)
SELECT name, 'vm-' || name, 'tenant', state_since FROM machine WHERE state = 'allocated';

INSERT INTO run (id, kind, subject, ref, phase, phase_since, why, due_at, epoch, lease_until, attempts, data, holds_budget,
    created_at, ended_at)
SELECT n, 'validation', CASE WHEN last THEN pg_temp.gpu(validations - n) ELSE pg_temp.some(n, machines) END,
    pg_temp.id('val', n), CASE WHEN last THEN 'checks' ELSE 'settle' END, at, 'checks are running', at + 10 * year, 12, 0, 0,
    '{}', last, at, CASE WHEN last THEN NULL ELSE at + 3600 END
FROM g, generate_series(1, validations) AS n,
    LATERAL (SELECT n > validations - open AS last, now - 3 * year * (validations - n) / validations AS at) AS v;

INSERT INTO validation (id, run, machine, plan, trigger, requested_by, prior_state, site_mode, verdict, reason, created_at,
    ended_at, playbook, image, phases, progress, inventory, receipts, evidence_bytes)
SELECT ref, id, subject, 'standard', 'vacated', 'service:vacancy', 'vacated', 'enforce',
    CASE WHEN ended_at IS NULL THEN NULL WHEN id % 25 = 0 THEN 'failed' WHEN id % 33 = 0 THEN 'aborted' ELSE 'passed' END,
    CASE WHEN ended_at IS NOT NULL THEN '14 checks on 8 GPUs' END, created_at, ended_at, playbook, '{"digest": "5f2c"}',
    phases, progress, slots, '{}', 40000000
FROM g, run;

INSERT INTO measurement (validation, check_name, name, ended, exit_status, started_at, duration_s, truncated, files)
SELECT v.id, 'nccl', 'nccl.' || n, 'exited', 0, v.created_at, 60, false,
    '{"stdout": {"path": "a", "sha256": "b", "bytes": 1}}'
FROM validation AS v, generate_series(1, 4) AS n;

INSERT INTO ticket (id, machine, cause, state, title, body, checks, validation, history, created_at, updated_at, closed_at)
SELECT pg_temp.id('tkt', run), machine, 'gpu_burn:' || run, s.state, 'gpu_burn on ' || machine,
    repeat('gpu3 98 C, limit 90 C; ', 100), '["gpu_burn"]', id, '[]', created_at, created_at,
    CASE WHEN s.state = 'closed' THEN created_at + 86400 END
FROM g, validation, LATERAL (SELECT CASE WHEN run < validations - 5000 THEN 'closed' WHEN run % 3 = 0 THEN 'open'
    WHEN run % 3 = 1 THEN 'fixed' ELSE 'reopened' END AS state) AS s
WHERE verdict = 'failed';

INSERT INTO attention (id, kind, machine, subject, reason, next_step, since, resolved_at, resolved_by)
SELECT pg_temp.id('att', n), CASE WHEN n % 1000 = 7 THEN 'tenant appeared' WHEN n % 2 = 0 THEN 'validation aborted'
    ELSE 'machine late' END, pg_temp.some(n, machines), 'subject ' || n, 'its validations were aborted five times',
    'fleet machine show', now - 3 * year * (20000 - n) / 20000, CASE WHEN n % 60 = 0 THEN NULL ELSE now END, 'anna'
FROM g, generate_series(1, 20000) AS n;

INSERT INTO audit (at, actor, source, action, machine, object, allowed, detail)
SELECT now - 3 * year * (700000 - n) / 700000,
    CASE WHEN n = 1234 THEN 'bert' WHEN n % 500 = 0 THEN 'anna' ELSE 'service:revalidation' END, '10.0.0.9',
    CASE WHEN n = 1234 THEN 'token.created' WHEN n % 500 = 0 THEN 'machine.hold' WHEN n % 7 = 0 THEN 'validation.started'
         ELSE 'machine.passed' END,
    pg_temp.some(n, machines), NULL, n % 40000 <> 99, '{"was": "validating", "now": "available", "why": "14 checks on 8 GPUs"}'
FROM g, generate_series(1, 700000) AS n;

INSERT INTO event (id, body_sha256, kind, machine, instance, cause, signals, state, received_at, applied_at)
SELECT 'evt-' || run, md5(id), 'instance.removed', machine, 'vm-' || run, 'remove', '[]', 'applied', created_at, created_at
FROM validation;

INSERT INTO notice (destination, kind, subject, version, machine, body, created_at, due_at, attempts, delivered_at,
    acknowledged_at, acknowledged_by)
SELECT CASE WHEN n % 10 = 0 THEN 'attention' ELSE 'scheduler' END, 'pool.returned', m.name, n, m.name, '{"why": "passed"}', now,
    now, 0, CASE WHEN n % 1000 = 500 THEN NULL ELSE now END, CASE WHEN n % 500 = 0 THEN NULL ELSE now END, 'scheduler'
FROM g CROSS JOIN generate_series(1, 200000) AS n JOIN machine AS m ON m.name = pg_temp.some(n, machines);

INSERT INTO run (id, kind, subject, ref, phase, phase_since, why, due_at, epoch, lease_until, attempts, data, holds_budget,
    created_at, ended_at)
SELECT 1000000 + n, 'inspection', pg_temp.some(n, machines), pg_temp.id('ins', n), 'look', now - n, '', now, 1, 0, 0, '{}',
    false, now - n, now
FROM g, generate_series(1, 20000) AS n;

INSERT INTO inspection (id, run, machine, kind, requested_by, outcome, result, created_at, ended_at)
SELECT ref, id, subject, 'check', 'anna', 'met', phases, created_at, ended_at FROM g, run WHERE kind = 'inspection';

INSERT INTO token (id, name, role, secret_sha256, created_at, created_by)
SELECT pg_temp.id('tok', n), 'p' || n, 'viewer', md5(n::text), now - n, 'anna' FROM g, generate_series(1, 500) AS n;

INSERT INTO approval (id, action, machine, target, request, reason, state, requested_by, requested_token, requested_at,
    expires_at, decided_by, decided_at, outcome)
SELECT pg_temp.id('apr', n), 'machine.retire', pg_temp.gpu(n % 200), 'target ' || n, '{}', 'old',
    (ARRAY['approved', 'rejected', 'expired', 'waiting'])[1 + n % 4], 'anna', 'tok-1', now - n, now + 86400, 'bert', now, 'done'
FROM g, generate_series(1, 4000) AS n;

SELECT setval(pg_get_serial_sequence('run', 'id'), (SELECT max(id) FROM run));

ANALYZE"""


def fill(db: Database) -> None:
    """`db` is at head and empty. Ends with ANALYZE, which autovacuum would do in time."""
    with db.engine.connect() as connection:
        take_time(connection)
        with connection.begin():
            connection.execute(sa.text(_GIVEN.partition(";")[0]), _given(db.now()))
            for statement in (*_statements(_GIVEN.partition(";")[2]), *_statements(_ROWS)):
                connection.exec_driver_sql(statement)


def _statements(script: str) -> Iterator[str]:
    yield from (statement.replace("%", "%%") for statement in script.split(";\n"))


def _given(now: float) -> dict[str, Any]:
    playbook = Playbook.load(Library([SHIPPED]), "standard", SKU)
    slots = [asdict(Slot(f"gpu{n}", SlotKind.GPU, f"0000:{n + 16:02x}:00.0", f"0000:00:0{n}.0")) for n in range(8)]
    phases = [{"phase": name, "since": now, "until": now, "why": "seen"} for name in ("queued", "preflight", "checks")]
    return {
        "now": now,
        "year": YEAR_S,
        "machines": MACHINES,
        "validations": VALIDATIONS,
        "open": OPEN,
        "sku": SKU,
        "ssh": json.dumps({"address": "10.0.0.1", "port": 22, "user": "fleet", "host_key": "k", "key_ref": "file:/k"}),
        "slots": json.dumps(slots),
        "playbook": json.dumps(playbook.dump()),
        "phases": json.dumps(phases),
        "progress": json.dumps({name: {"state": "ended", "percent": None} for name in playbook.plan.names}),
    }
