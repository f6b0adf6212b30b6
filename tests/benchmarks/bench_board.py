"""What the class board takes of the instructor's machine: seventy learners, whose news comes every ten seconds.

    python -m tests.benchmarks.bench_board [--learners 70] [--seconds 60] [--json FILE]

Figures: processor time of the board's process over time by the clock, its page being asked for as an open one asks; and
its memory. News comes by files and by TCP, every other one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request

import psutil

from kit.classroom.board.mail import mail_to
from kit.classroom.board.news import News, sealed
from tests.benchmarks.figures import Figure, options, tell

CODE = "R4IN-7Q2M-K8PC"
NEWS_EVERY, PAGE_EVERY = 10.0, 2.0  # s


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--learners", type=int, default=70)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "kit.cli", "board", "--folder", folder, "--code", CODE, "--no-browser"]
        with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as board:
            assert board.stdout is not None
            address = board.stdout.readline().partition('at="')[2].partition('"')[0]
            url = board.stdout.readline().split()[-1]
            mails = [mail_to(folder, CODE), mail_to(address, CODE)]
            process = psutil.Process(board.pid)
            begun, busy = time.monotonic(), sum(process.cpu_times()[:2])
            sent = asked = 0
            while (passed := time.monotonic() - begun) < chosen.seconds:
                while sent < passed * chosen.learners / NEWS_EVERY:
                    k = sent % chosen.learners
                    said = f"rank {sent % 4} returned {sent}, where 4 is right"
                    news = News(
                        f"{k:032x}", f"learner {k}", "01a", "write", "ring-all-reduce", "failed", "values", said
                    )
                    mails[k % 2].send(news.learner, sealed(news, CODE))
                    sent += 1
                if asked < passed / PAGE_EVERY:
                    asked += 1
                    with urllib.request.urlopen(f"{url}state") as answer:
                        answer.read()
                time.sleep(0.05)
            share = (sum(process.cpu_times()[:2]) - busy) / (time.monotonic() - begun)
            memory = process.memory_info().rss
            board.terminate()
    tell(
        [
            Figure(f"lockstep board, {chosen.learners} learners: of one core", 100 * share, "%", 5),
            Figure("its memory", memory / 1e6, "MB"),
        ],
        chosen.json,
    )


if __name__ == "__main__":
    main()
