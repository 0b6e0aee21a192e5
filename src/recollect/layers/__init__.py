"""Blocks that at least two papers share; none keeps a memory between calls, except rings, which serve streams.

attention          multi-head attention over given queries, keys, values and masks
window_attention   attention in a sliding window: visible past steps, cached steps, scores
ring_attention     one step, or a few, of a windowed layer on ring buffers: the parts of streams
rings              ring buffers: the last steps of every row, contiguous and in order
spatial_attention  maps inside input vectors, the basis of their places, attention to places
positions          sinusoids, a learned table, patches of images
feedforward        W2 act(W1 x), stacks of linear maps, the input projection, initial weights
gates              how the output of a sub-layer joins its stream: a sum, or the gate of GTrXL
finite             limits of usable inputs
tap                named points where attention weights can be recorded or edited
config             settings shared by configs, without torch
"""
