"""`lockstep board`: where everybody is, live, of those who have joined."""

from __future__ import annotations

import re
import socket
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.cli.numbers import whole

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "board",
        help="see live where a class is",
        description="Show where everybody is who has joined: lab, exercise, who is stuck on what for how long, who "
        "asks for help, and what checks say most often. Learners join with one line, which is shown; nothing is asked "
        "of who does not.",
        epilog="Where learners are on other machines, name a folder that all of you reach (--folder), or an address of "
        "this one that they reach (--listen).",
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where news is left (default: this machine's /tmp)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="take news by TCP there, too; port 0: any")
    parser.add_argument("--code", metavar="CODE", help="of an earlier board, to go on with (default: drawn)")
    parser.add_argument("--port", type=whole(0, "the port"), default=0, metavar="N", help="of the page (default: any)")
    parser.add_argument("--no-browser", action="store_true", help="show the page's address, and open nothing")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kit.classroom.board.server import Board, new_code, serve

    code = options.code or new_code()
    folder = (options.folder or Path(tempfile.gettempdir())).expanduser()

    def ready(url: str, address: str) -> None:
        where = f', at="{address}"' if address else f', at="{folder}"' if options.folder else ""
        print(f'Learners type:  kit.join("{code}", name="..."{where})')
        print(f"The board:      {url}")
        port = url.split(":")[2].split("/")[0]
        print(
            f"From elsewhere: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}, then the same address", flush=True
        )
        if not options.no_browser:
            webbrowser.open(url)

    try:
        serve(Board(code, folder), _address(options.listen), options.port, ready)
    except OSError as problem:
        raise ValueError(f"the board cannot begin: {problem}") from problem
    return 0


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(.+):(\d+)", text)
    if not found or int(found[2]) > 65535:
        raise ValueError(f"--listen wants HOST:PORT, as in 10.0.0.5:8900, not {text!r}")
    return found[1].strip("[]"), int(found[2])
