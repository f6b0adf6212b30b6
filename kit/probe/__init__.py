"""Inside a rank: lines, operations, tensors, memory and output, observed without touching the learner's code.

    rank        what a rank does besides being an engine; `world`, `peers`: its process groups, and who is in them
    run         one function on one rank: `step` stops it (`lines`, `code`), `record` lets it run
    backend     the process group around the real one; `operations`: what it is asked for; `ledger`: what came of it
    posted      operations that wait for their partners' to be posted; `deferred`: a Work completed by this process
    capture     what is in scope at a stop; `delta`: how it travels; `output`: what was printed
    links       makes real messages slow; `memory` accounts for what a rank holds; `threads` runs ranks as threads
    shipping    functions and arguments on their way here, and `blackbox` what a host can read of a rank that is dead
    torch_private   what all this uses of torch beyond its documented interface; `torch_names` lists it

The kernel and the host use `shipping`, `delta`, `code`, `blackbox` and `torch_names` too: these need no torch.
"""
