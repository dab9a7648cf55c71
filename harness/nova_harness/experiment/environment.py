"""The environment of an experiment: versions, kernel, cores, load."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("nova-placement", "numpy", "pyarrow", "paramiko")


def environment() -> dict[str, Any]:
    """Facts about this machine and installed packages, for JSON."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": platform.machine(),
        "system": platform.platform(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": list(os.getloadavg()),
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: known for name in PACKAGES if (known := _version(name))},
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    # ARM kernels have "Model" or "Hardware" instead.
    for field in ("model name", "Model", "Hardware"):
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return platform.processor()


def _java() -> str | None:
    try:
        process = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = process.stderr.splitlines()
    return lines[0] if lines else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
