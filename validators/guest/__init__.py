"""What runs in the test VM: Python 3.8, the standard library and the bundled NVML binding. It measures and judges nothing.

``build.py`` packs this package, as ``guest``, into the zipapp that the service pushes. The orchestrator's side is
``fleet/workflows/guest.py``.
"""
