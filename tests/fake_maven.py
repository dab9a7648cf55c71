"""A `mvn` that stands for a repository in a state that a real one is in too rarely to test."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from nova_engines import maven

CONTENT = b"the plug-in"
PLUGIN = maven.Artifact("fake", "plugin", "1", hashlib.sha256(CONTENT).hexdigest())


def pin_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pin what the stand-in says that it loads, in place of what a real one does."""
    monkeypatch.setattr(maven, "plugin_jars", lambda: {("fake", "plugin", "1"): PLUGIN})


def fake_maven(
    directory: Path, script: str, loads: str = "fake:plugin:jar:1", content: bytes = CONTENT
) -> None:
    """Put it into a directory of the PATH.

    Args:
        directory: where.
        script: what it does when it copies.
        loads: the jar that it says to load for its plug-in; none if empty.
        content: of that jar.
    """
    jar = directory / "repository" / PLUGIN.repository_path / PLUGIN.file
    jar.parent.mkdir(parents=True, exist_ok=True)
    jar.write_bytes(content)
    said = f"[DEBUG] Using local repository at {directory}/repository\n"
    said += f"[DEBUG]   Included: {loads}\n" if loads else ""
    (directory / "answer").write_text(said)
    answer = f"case \"$*\" in *validate) cat '{directory}/answer'; exit 0 ;; esac"
    program = directory / "mvn"
    program.write_text(f"#!/bin/sh\n{answer}\n{script}\n")
    program.chmod(0o755)
