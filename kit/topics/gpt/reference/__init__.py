"""A GPT laid out over ranks by every strategy of the labs, in plain torch.

To be read in this order:

    parallelize   the page of contents: which layers are cut, what is wrapped, who steps the weights
    ladder        number formats, fused attention and the like: what makes one device faster
    layout        'zero2', 'tp+sp', 'ddp=2 x tp=2': a strategy in a word, and how many ranks each part has
    mesh          the groups of ranks that it asks for
    replicas      models that are called as a whole: alone, averaged, sharded, in tensor-parallel shards
    pipelined     models in stages
    muon          what steps matrices in the place of AdamW, by the second recipe
    norm          the norm of all gradients together, whoever holds them, and clipping by it
    state         weights and moments whole again, for a checkpoint that any layout can go on from
    built_in      torch's own in the place of ours: DistributedDataParallel, ZeroRedundancyOptimizer, FSDP2

What `parallelize` gives is called alike on every rank: `gradients`, `clip`, `update`, `loss`, `state`, `restore`.
"""

from kit.topics.gpt.reference.ladder import Extras
from kit.topics.gpt.reference.layout import Layout
from kit.topics.gpt.reference.parallelize import parallelize
from kit.topics.gpt.reference.replicas import Adam

__all__ = ["Adam", "Extras", "Layout", "parallelize"]
