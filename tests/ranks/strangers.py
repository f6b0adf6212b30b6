"""Processes of another user of this host, which only root can start."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

NOBODY = 65534
BECOME = f"import os\nos.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"


def begin(imports: str, body: str, **told: Any) -> subprocess.Popen[str]:
    """Runs `body` as nobody, once root has imported; it reads `told` and prints one JSON object."""
    script = f"import json, sys\n{imports}\n{BECOME}told = json.loads(sys.argv[1])\n{textwrap.dedent(body)}"
    command = [sys.executable, "-c", script, json.dumps(told)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> Any:
    said, _ = process.communicate("\n")
    return json.loads(said)
