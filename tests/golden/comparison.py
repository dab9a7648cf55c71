"""Answers as files: what is left out, how numbers and long values are written, what differs."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator
from typing import Any

VOLATILE = {
    "nova_plan": "the version of a format",
    "nova_plan_delta": "the version of a format",
    "problem": "its digest is recorded once, not with every plan",
    "written": "paths",
}
"""Fields that are left out wherever they occur, with the reason."""

CODE = {".py", ".jar", ".java", ".scala", ".class"}
"""Files of bundles that are left out: they are parts of Nova."""

DIGITS = 6
"""Significant digits of numbers: sums differ in the last ones from processor to processor."""
NOTHING = 1e-9
"""Numbers up to that are 0."""
LONG = 120
"""Values are written in full up to that many characters; of longer ones, a digest."""
LEVELS = 3
"""Levels of an answer that have a line for each value."""


def plain(value: Any) -> Any:
    """A value without volatile fields, numbers rounded."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items() if key not in VOLATILE}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        number = 0.0 if abs(value) <= NOTHING else float(f"{value:.{DIGITS}g}")
        return int(number) if number.is_integer() else number
    return value


def brief(value: Any) -> Any:
    """A value as it is, or the digest of a long one."""
    value = plain(value)
    text = _compact(value)
    if len(text) <= LONG:
        return value
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]} of {len(text)} characters"


def text_of(answer: Any, level: int = 0) -> str:
    """The text of a golden: JSON, a line for each value of the first levels."""
    if level == LEVELS or not answer or not isinstance(answer, dict | list):
        return _compact(answer)
    inside = "\n" + " " * (level + 1)
    if isinstance(answer, dict):
        rows = [f"{_compact(key)}: {text_of(answer[key], level + 1)}" for key in sorted(answer)]
        return "{" + inside + f",{inside}".join(rows) + "\n" + " " * level + "}"
    rows = [text_of(one, level + 1) for one in answer]
    return "[" + inside + f",{inside}".join(rows) + "\n" + " " * level + "]"


def differences(old: Any, new: Any, where: str) -> Iterator[str]:
    """Lines that say where two answers differ, with the old and the new value."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            here = f"{where}: {key}"
            if key not in new:
                yield f"{here}: is no longer there; was {_compact(old[key])}"
            elif key not in old:
                yield f"{here}: is new: {_compact(new[key])}"
            else:
                yield from differences(old[key], new[key], here)
    elif isinstance(old, list) and isinstance(new, list):
        lines = difflib.ndiff([_compact(one) for one in old], [_compact(one) for one in new])
        yield from (f"{where}: {line}" for line in lines if line[0] in "-+")
    elif old != new:
        yield f"{where}: was {_compact(old)}, is {_compact(new)}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
