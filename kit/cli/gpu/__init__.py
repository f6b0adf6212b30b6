"""`lockstep doctor --gpu`: what only a machine with GPUs can show, in thirteen steps and five minutes.

    facts          what a step runs on, what it says, what came of it
    step           what a step is
    steps          the thirteen, in order; each group of them has a module: machine, communication, training, sharing
    bench          what a step works with: clusters, programs on ranks, facts and expectations
    programs       what runs on the ranks: plain torch.distributed functions
    process        a step in a process of its own, with a limit; `__main__` is that process
    trial          all steps, one after the other
    report         what a person reads, and the file that is sent home

Nothing here but `programs`, and what runs in a step's process, loads torch: where torch cannot be imported, or ends the
process that does, there is still a report that says so.
"""
