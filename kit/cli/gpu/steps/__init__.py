"""The thirteen steps, in their order. Together they take five minutes at most; the labs, which are asked for, more."""

from kit.cli.gpu.step import Step
from kit.cli.gpu.steps.communication import Collectives, Faults, Messages, Race
from kit.cli.gpu.steps.labs import Labs
from kit.cli.gpu.steps.machine import Devices, Forks, Machine, Starts
from kit.cli.gpu.steps.sharing import Sharing
from kit.cli.gpu.steps.training import Scripts, Size, Training

STEPS: tuple[Step, ...] = (
    Machine(),
    Forks(),
    Devices(),
    Starts(),
    Collectives(),
    Race(),
    Messages(),
    Faults(),
    Training(),
    Size(),
    Sharing(),
    Scripts(),
)
LABS: Step = Labs()
