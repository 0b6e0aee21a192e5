"""Temporal latent bottleneck (Didolkar et al. 2022): a fast stream that sees one chunk, a slow one that sees them all.

Read ``core`` (the equations, the config, the state), then ``reference`` (the same as a plain loop). The fast form is
``level`` (the walk over the chunks), with ``blocks`` (a layer, and its norms folded into its products) and ``chunks``
(which steps belong together); ``stream`` takes one step at a time.
"""

from recollect.cores.tlb.core import (
    SlotReadout,
    TemporalLatentBottleneck,
    TemporalLatentBottleneckConfig,
    TemporalLatentBottleneckState,
    TemporalLatentBottleneckVariant,
)
from recollect.cores.tlb.reference import reference_unroll
from recollect.cores.tlb.stream import TemporalLatentBottleneckStream

TemporalLatentBottleneck.reference_unroll = reference_unroll
TemporalLatentBottleneck.stream_type = TemporalLatentBottleneckStream

__all__ = [
    "SlotReadout",
    "TemporalLatentBottleneck",
    "TemporalLatentBottleneckConfig",
    "TemporalLatentBottleneckState",
    "TemporalLatentBottleneckStream",
    "TemporalLatentBottleneckVariant",
]
