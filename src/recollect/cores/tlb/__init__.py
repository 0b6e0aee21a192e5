"""Temporal latent bottleneck (Didolkar et al. 2022): a fast stream inside one chunk, and slots that connect the chunks.

Read ``core`` (equations, state, core), then ``reference`` (the same as a plain loop); ``config`` has the settings. The
fast form is ``level`` (the loop over the chunks), with ``blocks`` (a layer, and its norms folded into its products) and
``chunks`` (which steps belong together); ``stream`` takes one step at a time.
"""

from typing import TYPE_CHECKING

from recollect.cores.tlb.config import TemporalLatentBottleneckConfig as TemporalLatentBottleneckConfig
from recollect.cores.tlb.config import TemporalLatentBottleneckVariant as TemporalLatentBottleneckVariant
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.tlb.core import SlotReadout as SlotReadout
    from recollect.cores.tlb.core import TemporalLatentBottleneck as TemporalLatentBottleneck
    from recollect.cores.tlb.core import TemporalLatentBottleneckState as TemporalLatentBottleneckState

__getattr__ = attach(
    __name__,
    {"SlotReadout": "core", "TemporalLatentBottleneck": "core", "TemporalLatentBottleneckState": "core"},
)
