"""Blocks that at least two papers share; none keeps a memory between calls, except rings, which serve streams.

attention          multi-head attention over given queries, keys, values and masks
window_attention   attention in a sliding window: who sees which past step, what a cache keeps, the scores
spatial_attention  maps inside vectors, the basis of their places, and attention to them
positions          sinusoids, a learned table
feedforward        W2 act(W1 x), longer stacks of linear maps, the input projection, Glorot's first weights
gates              how the output of a sub-layer joins its stream: a sum, or GTrXL's gate
finite             which inputs can be computed with
tap                a point where a recorder may listen to attention weights
rings              ring buffers: the last steps of every row, contiguous and in order
ring_attention     one step of a windowed layer on such a ring: what streams are made of
"""
