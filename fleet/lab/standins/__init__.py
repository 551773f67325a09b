"""Tools that a simulated host or guest has, replayed. Each is a process of its own, started without site packages, so that
it starts in a few hundredths of a second and goes on when the lab does not. Standard library only."""
