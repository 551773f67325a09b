"""Packs the guest's code and the NVML binding into one zipapp. Runs in the control plane, not in the guest."""

import functools
import io
import zipfile
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).parent
MAIN = b"from guest.command import main\nimport sys\n\nsys.exit(main(sys.argv[1:]))\n"


def sources() -> dict[str, bytes]:
    """Path in the archive -> content."""
    ours = {
        f"guest/{path.relative_to(HERE).as_posix()}": path.read_bytes()
        for path in HERE.rglob("*.py")
        if path != Path(__file__)
    }
    binding = Path(str(distribution("nvidia-ml-py").locate_file("pynvml.py"))).read_bytes()
    return {"__main__.py": MAIN, "pynvml.py": binding, **ours}


@functools.cache
def runner_zipapp() -> bytes:
    """The same bytes for the same sources: no times, no owners, names in order."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, content in sorted(sources().items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            zipped.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return archive.getvalue()
