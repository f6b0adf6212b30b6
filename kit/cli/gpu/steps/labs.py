"""Step 13: all labs, with solutions."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from kit.cli.gpu.step import Step
from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.cli.gpu.bench import Bench


class Labs(Step):
    """`lockstep check --solutions`: every notebook from its first cell to its last, every exercise solved."""

    number, title, limit = 13, "all labs with solutions", 1200.0
    labs: tuple[str, ...] = ()  # numbers or names; all of them where none is named

    def run(self, bench: Bench) -> str:
        page = bench.folder / "labs.json"
        command = [sys.executable, "-m", "kit.cli", "check", *self.labs, "--solutions", "--json", str(page)]
        if bench.ranks > 1:
            command += ["--ranks", str(bench.ranks)]
        said = subprocess.run(command, capture_output=True, text=True)
        bench.fact("exit code", said.returncode)
        if not page.exists():
            raise RuntimeError(f"lockstep check wrote no report: {(said.stderr or said.stdout).strip()[-300:]}")
        told = json.loads(page.read_text(encoding="utf-8"))
        for lab in told["labs"]:
            bench.fact(
                lab["lab"], {key: lab[key] for key in ("passed", "failed", "no_check_ran", "trouble", "seconds")}
            )
            troubles = [lab["trouble"], *(one["sentence"] for one in lab["exercises"] if one["outcome"] == "failed")]
            words = next(filter(None, troubles), "not every check passed")
            bench.expect(lab["as_expected"], f"{lab['lab']}: {words}")
        bench.expect(told["as_expected"], f"{len(told['labs'])} of {told['notebooks']} notebooks were run")
        return f"{counted(len(told['labs']), 'notebook')}, every check passed"
