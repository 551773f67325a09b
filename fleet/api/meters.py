"""What this API process has answered since it started, for Prometheus. Routes are templates, never the paths asked for."""

from prometheus_client import Counter, Histogram

REQUESTS = Counter("fleet_http_requests", "Requests answered by this API process.", ("method", "route", "status"))
REQUEST_S = Histogram(
    "fleet_http_request_seconds",
    "How long an answer took, from the first byte of the request's head to the last of the answer.",
    ("method", "route"),
    buckets=(0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0),
)
