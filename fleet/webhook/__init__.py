"""Signed HTTP calls to what a site runs beside this service: its hooks, its scheduler, whatever tells its people."""
