"""Inside a rank: lines, operations, tensors, memory and output, observed without touching the learner's code.

Imports torch only in the modules that need it; `wire` and `shipping` also run in the kernel and the host agent.
Inner rooms: `memory` accounts for what a rank holds, `links` makes real messages slow, `threads` runs ranks as threads.
"""
