"""All benchmarks one after the other: one table, one JSON file, and with --readme the README's table too.

    python -m tests.benchmarks [NAME ...] [--json FILE] [--readme]

NAME is a program of this folder without `bench_` (session, labs, ...); none means all. They take some fifteen minutes
and want the machine to themselves. The exit status is 1 if a figure is outside its gate or a program failed.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.figures import Figure, machine, markdown, options, read, table

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
TABLE = re.compile(r"(<!-- figures: .*? -->\n).*?(<!-- end of figures -->)", re.DOTALL)
PROGRAMS = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}


def measure(name: str, folder: Path) -> list[Figure] | None:
    """The figures of one program, which runs in a Python of its own; None if it failed."""
    file = folder / f"{name}.json"
    print(f"\n== {name}", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.benchmarks.bench_{name}", "--json", str(file)], cwd=README.parent)
    return read(file) if file.exists() else None


def into_readme(figures: list[tuple[str, Figure]], where: str) -> None:
    text = README.read_text(encoding="utf-8")
    taken = f"Taken in {datetime.date.today():%B %Y} on: {where}."
    README.write_text(TABLE.sub(lambda m: f"{m[1]}{taken}\n\n{markdown(figures)}\n{m[2]}", text), encoding="utf-8")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.names) - PROGRAMS.keys())
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    with tempfile.TemporaryDirectory() as folder:
        found = {name: measure(name, Path(folder)) for name in chosen.names or PROGRAMS}
    failed = [name for name, figures in found.items() if figures is None]
    figures = [(f"bench_{name}", figure) for name, own in found.items() for figure in own or []]
    where = machine()
    print(f"\n{where}\n")
    if figures:
        print(table([figure for _, figure in figures]))
    for name in failed:
        print(f"bench_{name} FAILED: run it by itself to see why")
    if chosen.json:
        rows = [{"program": program, **asdict(figure)} for program, figure in figures]
        chosen.json.write_text(json.dumps({"machine": where, "figures": rows, "failed": failed}, indent=1))
    if chosen.readme:
        into_readme(figures, where)
    raise SystemExit(1 if failed or not all(figure.within for _, figure in figures) else 0)


if __name__ == "__main__":
    main()
