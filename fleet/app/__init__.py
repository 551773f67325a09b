"""The composition root: builds every part from the settings, wires them, and ends them in order."""
