"""What a host needs before its first validation, a row each. Every row says what was seen and, where it is not enough, the
command or the line that mends it; `docs/first-host.md` has the same things in the order of doing them."""
