"""Write the published schemas anew: ``python -m nova_core.model.schema``."""

from __future__ import annotations

import json
from pathlib import Path

from nova_core.model.files import write_text
from nova_core.model.schema import NAMES, generated

for name in NAMES:
    text = json.dumps(generated(name), indent=2, ensure_ascii=False) + "\n"
    write_text(Path(__file__).with_name(f"{name}.schema.json"), text)
