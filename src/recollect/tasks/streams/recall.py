"""The recall task: hear key-value pairs, wait, be asked about keys; then everything starts anew.

An episode of a row, one token a step:

    cue(k_1, v_1) ... cue(k_c, v_c)   blank ... blank   query(k) ... query(k')

The c keys of an episode are drawn without replacement, their values uniformly, the length of the blank
uniformly, anew for every episode. A query names a shown key (answer: its value, 1..V) or, with probability
1 / (V + 1), a key that was not shown in *this* episode (answer: 0, "not shown"). A row holds several episodes
and rows start them at different steps; ``is_first`` is the only sign of a new one. A model whose memory survives
it answers such queries with values of earlier episodes.

Chance is exact by construction: given the query alone all V + 1 answers are equally likely, since the shown keys
and their values are drawn independently of it. Whatever a model without memory answers, it scores 1 / (V + 1).

Source: ours; of the family of associative recall (Graves et al., Neural Turing Machines, 2014, section 4.3).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec


@dataclass(frozen=True, kw_only=True)
class Recall(StreamTask):
    """Say which value was shown with a key in this episode, or that the key was not shown."""

    num_keys: int = 4
    """Keys that exist."""
    num_values: int = 4
    """Values that exist (V); there are V + 1 answers."""
    num_cues: int = 2
    """Pairs shown in an episode; fewer than keys, so that some key is not shown."""
    num_queries: int = 2
    """Questions at the end of an episode."""
    min_blank: int = 1
    """Fewest blank steps between cues and questions."""
    max_blank: int = 24
    """Most blank steps between cues and questions."""
    num_blanks: int = 1
    """Kinds of blank token, drawn at random: 1 is silence, more are distraction."""
    length: int = 80
    """Steps in a row; the last episode is cut off there."""

    def __post_init__(self) -> None:
        for field in ("num_values", "num_cues", "num_queries", "num_blanks"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}={getattr(self, field)}: give at least 1")
        if self.num_cues >= self.num_keys:
            raise ValueError(f"num_cues={self.num_cues}: show fewer than num_keys={self.num_keys}, or add keys")
        if not 0 <= self.min_blank <= self.max_blank:
            raise ValueError(f"min_blank={self.min_blank}: give 0 <= min_blank <= max_blank={self.max_blank}")
        longest = self.max_blank + self.num_cues + self.num_queries
        if self.length < self.max_blank + longest:
            raise ValueError(
                f"length={self.length}: a row must hold a late start and one whole episode, "
                f"that is at least {self.max_blank + longest} steps"
            )

    @property
    def spec(self) -> TaskSpec:
        """Tokens: blanks, then cues (key-major), then queries. Classes: "not shown", then the values."""
        return TaskSpec(
            vocabulary=self.num_blanks + self.num_keys * self.num_values + self.num_keys,
            input_dim=None,
            num_classes=self.num_values + 1,
            length=self.length,
            chance=1 / (self.num_values + 1),
            solved=0.95,
            memory_span=self.num_cues + self.max_blank + self.num_queries - 1,
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw ``batch_size`` fresh rows."""
        b, c, q = batch_size, self.num_cues, self.num_queries
        shortest = c + self.min_blank + q
        n = -(-self.length // shortest)  # episodes that may fit into a row

        def draw(low: int, high: int, *shape: int) -> Tensor:
            return torch.randint(low, high, shape, generator=generator)

        blanks = draw(self.min_blank, self.max_blank + 1, b, n)
        lead = draw(0, self.max_blank + 1, b)  # blank steps before the first whole episode: rows start out of step
        ends = lead[:, None] + (c + blanks + q).cumsum(1)
        starts = torch.cat((lead[:, None], ends[:, :-1]), 1)  # b n

        shuffled = torch.rand(b, n, self.num_keys, generator=generator).argsort(-1)  # the first c keys are shown
        values = draw(1, self.num_values + 1, b, n, c)
        shown = torch.rand(b, n, q, generator=generator) < self.num_values / (self.num_values + 1)
        which = torch.where(shown, draw(0, c, b, n, q), draw(c, self.num_keys, b, n, q))
        answers = torch.where(shown, values.gather(-1, which.clamp(max=c - 1)), 0)

        first_cue, first_query = self.num_blanks, self.num_blanks + self.num_keys * self.num_values
        cue_tokens = first_cue + shuffled[..., :c] * self.num_values + values - 1
        query_tokens = first_query + shuffled.gather(-1, which)
        cue_steps = starts[..., None] + torch.arange(c)  # b n c
        query_steps = ends[..., None] - q + torch.arange(q)  # b n q

        inputs = self._row(draw(0, self.num_blanks, b, self.length), (cue_steps, cue_tokens))
        inputs = self._row(inputs, (query_steps, query_tokens))
        targets = self._row(torch.zeros_like(inputs), (query_steps, answers))
        cue_of_query = cue_steps.gather(-1, which.clamp(max=c - 1))
        source = self._row(torch.full_like(inputs, -1), (query_steps, torch.where(shown, cue_of_query, -1)))
        never = torch.zeros(b, self.length, dtype=torch.bool)
        asked = self._row(never, (query_steps, torch.ones_like(query_steps, dtype=torch.bool)))
        is_first = self._row(never, (starts, torch.ones_like(starts, dtype=torch.bool)))
        is_first[:, 0] = True
        return Batch(inputs, is_first, targets, asked, asked, source)

    def _row(self, row: Tensor, written: tuple[Tensor, Tensor]) -> Tensor:
        # A spare last column takes what lies beyond the row's end.
        steps, content = (part.flatten(1) for part in written)
        padded = torch.cat((row, row.new_zeros(row.shape[0], 1)), 1)
        return padded.scatter(1, steps.clamp(max=self.length), content)[:, : self.length]
