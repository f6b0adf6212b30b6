"""The process of one step: `python -m kit.cli.gpu NUMBER PLACE FOLDER LIMIT`, as `process.carry_out` starts it."""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli.gpu.bench import Bench, in_short
from kit.cli.gpu.facts import Doing, Done, Failure, Place
from kit.cli.gpu.process import say
from kit.cli.gpu.steps import LABS, STEPS

if TYPE_CHECKING:
    from kit.cli.gpu.step import Step


def main(step: Step, place: Place, folder: Path) -> int:
    tell = partial(say, file=folder / "said")
    tell(Doing("its preparation"))
    try:
        tell(Done(step.run(Bench(place, folder, tell, step.patience * place.pace))))
    except Exception as error:  # whatever a machine does: it is what this step found out
        tell(Failure(in_short(error), traceback.format_exc()))
        return 1
    return 0


if __name__ == "__main__":
    number, where, files, seconds = sys.argv[1:]
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(0.5, float(seconds) - 0.5))  # where it hangs is in its last words
    wanted = next(step for step in (*STEPS, LABS) if step.number == int(number))
    sys.exit(main(wanted, Place(**json.loads(where)), Path(files)))
