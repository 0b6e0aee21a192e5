"""The recall task: read key-value pairs, wait, answer queries about keys; then a new episode starts.

An episode of a row, one token a step:

    cue(k_1, v_1) ... cue(k_c, v_c)   blank ... blank   query(k) ... query(k')

The c keys of an episode are drawn without replacement, their values and the length of the blank uniformly. A query
names a shown key (answer: its value, 1..V) or, with probability 1 / (V + 1), a key that was not shown in *this* episode
(answer: 0, "not shown"). A row holds several episodes that start at different steps in different rows; ``is_first``
alone marks a new one. A model that keeps its memory across episodes answers queries with values of earlier ones.

Three fields make it harder. ``overwrites`` cues follow the first c, each with a new value of a key that was shown: its
newest value counts. A share of the blank steps may show *distractors*, pairs like cues but marked as not to be
remembered. And more keys may be shown than a memory can hold. In the form ``features`` a step is a vector of zeros and
ones (kind of step, key, value), so that learning about a key or a value helps with every pair that contains it.

Chance is exact by construction: given the query alone all V + 1 answers are equally likely, since the shown keys
and their values are drawn independently of it. A model without memory scores 1 / (V + 1).
Queries of one episode carry a little information about each other (a key that is asked for again is likelier to have
been shown): a model that remembers them, and no cue, can reach 0.23 instead of 0.2 with these defaults.

Source: ours; of the family of associative recall (Graves et al., Neural Turing Machines, 2014, section 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, log2
from typing import Literal

from recollect.config import require, require_one_of
from recollect.lazy import torch
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec

RecallForm = Literal["tokens", "features"]


@dataclass(frozen=True, kw_only=True)
class Recall(StreamTask):
    """Recall which value was shown with a key in this episode, or that the key was not shown."""

    num_keys: int = 4
    """Keys that exist."""
    num_values: int = 4
    """Values that exist (V); there are V + 1 answers."""
    num_cues: int = 2
    """Pairs shown in an episode; fewer than keys, so that some key is not shown."""
    num_queries: int = 2
    """Queries at the end of an episode."""
    min_blank: int = 1
    """Fewest blank steps between cues and queries."""
    max_blank: int = 24
    """Most blank steps between cues and queries."""
    num_blanks: int = 1
    """Kinds of blank token, drawn at random; more than 1 add noise."""
    length: int = 80
    """Steps in a row; the last episode is cut off there."""
    overwrites: int = 0
    """Cues after the first ones, each with a new value of a key that was shown."""
    distractors: float = 0.0
    """Share of the blank steps that show a pair which need not be remembered."""
    form: RecallForm = "tokens"
    """A step is one token, or a vector of zeros and ones: kind of step, key, value."""

    def __post_init__(self) -> None:
        for name in ("num_values", "num_cues", "num_queries", "num_blanks"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "give at least 1")
        enough = self.num_cues < self.num_keys
        require(enough, "num_cues", self.num_cues, f"show fewer than num_keys={self.num_keys}, or add keys")
        ordered = 0 <= self.min_blank <= self.max_blank
        require(ordered, "min_blank", self.min_blank, f"give 0 <= min_blank <= max_blank={self.max_blank}")
        require(self.overwrites >= 0, "overwrites", self.overwrites, "give at least 0")
        require(0 <= self.distractors <= 1, "distractors", self.distractors, "give a share of the blanks, from 0 to 1")
        require_one_of(self, "form")
        least = 2 * self.max_blank + self.num_cues + self.overwrites + self.num_queries
        room = "a row must hold a late start and one whole episode, that is at least"
        require(self.length >= least, "length", self.length, f"{room} {least} steps")

    @property
    def spec(self) -> TaskSpec:
        """Tokens: blanks, cues (key-major), queries, distractors (as cues). Classes: "not shown", then the values.

        Features: kind of step (each kind of blank, cue, query, distractor), key, value.
        """
        pairs = self.num_keys * self.num_values
        tokens = self.num_blanks + pairs + self.num_keys + (pairs if self.distractors else 0)
        features = self.num_blanks + 3 + self.num_keys + self.num_values
        return TaskSpec(
            vocabulary=tokens if self.form == "tokens" else None,
            input_dim=None if self.form == "tokens" else features,
            num_classes=self.num_values + 1,
            length=self.length,
            chance=1 / (self.num_values + 1),
            solved=0.95,
            memory_span=self.num_cues + self.overwrites + self.max_blank + self.num_queries - 1,
            bits=log2(comb(self.num_keys, self.num_cues)) + self.num_cues * log2(self.num_values),
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw ``batch_size`` fresh rows."""
        b, c, q = batch_size, self.num_cues + self.overwrites, self.num_queries
        shortest = c + self.min_blank + q
        n = -(-self.length // shortest)  # episodes that may fit into a row

        def draw(low: int, high: int, *shape: int) -> torch.Tensor:
            return torch.randint(low, high, shape, generator=generator)

        blanks = draw(self.min_blank, self.max_blank + 1, b, n)
        lead = draw(0, self.max_blank + 1, b)  # blank steps before the first whole episode
        ends = lead[:, None] + (c + blanks + q).cumsum(1)
        starts = torch.cat((lead[:, None], ends[:, :-1]), 1)  # b n

        shuffled = torch.rand(b, n, self.num_keys, generator=generator).argsort(-1)  # the first keys are shown
        values = draw(1, self.num_values + 1, b, n, c)
        shown = torch.rand(b, n, q, generator=generator) < self.num_values / (self.num_values + 1)
        which = torch.where(shown, draw(0, self.num_cues, b, n, q), draw(self.num_cues, self.num_keys, b, n, q))
        silence = draw(0, self.num_blanks, b, self.length)
        place = torch.arange(self.num_cues).expand(b, n, -1)  # whose value each cue gives, as a place in ``shuffled``
        place = torch.cat((place, draw(0, self.num_cues, b, n, self.overwrites)), -1)  # b n c
        newest = (place[..., None, :] == which[..., None]) * torch.arange(1, c + 1)
        cue = (newest.amax(-1) - 1).clamp(min=0)  # b n q: the last cue of the key that is asked for
        answers = torch.where(shown, values.gather(-1, cue), 0)

        first_query = self.num_blanks + self.num_keys * self.num_values
        cue_tokens = self.num_blanks + shuffled.gather(-1, place) * self.num_values + values - 1
        query_tokens = first_query + shuffled.gather(-1, which)
        cue_steps = starts[..., None] + torch.arange(c)  # b n c
        query_steps = ends[..., None] - q + torch.arange(q)  # b n q

        inputs = self._write(self._add_distractors(silence, generator), (cue_steps, cue_tokens))
        inputs = self._write(inputs, (query_steps, query_tokens))
        targets = self._write(torch.zeros_like(inputs), (query_steps, answers))
        source = torch.where(shown, cue_steps.gather(-1, cue), -1)
        source = self._write(torch.full_like(inputs, -1), (query_steps, source))
        never = torch.zeros(b, self.length, dtype=torch.bool)
        asked = self._write(never, (query_steps, torch.ones_like(query_steps, dtype=torch.bool)))
        is_first = self._write(never, (starts, torch.ones_like(starts, dtype=torch.bool)))
        is_first[:, 0] = True
        if self.form == "features":
            inputs = self._to_features(inputs)
        return Batch(inputs, is_first, targets, asked, asked, source)

    def count_items(self, batch: Batch) -> torch.Tensor:
        """Count cues, overwritten ones included, and distractors."""
        if self.form == "features":
            return batch.inputs[..., [self.num_blanks, self.num_blanks + 2]].sum(-1).long()
        queries = self.num_blanks + self.num_keys * self.num_values
        is_query = (batch.inputs >= queries) & (batch.inputs < queries + self.num_keys)
        return ((batch.inputs >= self.num_blanks) & ~is_query).long()

    def _add_distractors(self, silence: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Replace a share of the blank steps ``[b, t]`` with distractors."""
        if not self.distractors:
            return silence
        pairs, first = self.num_keys * self.num_values, self.num_blanks + self.num_keys * (self.num_values + 1)
        chosen = torch.rand(silence.shape, generator=generator) < self.distractors
        return torch.where(chosen, first + torch.randint(0, pairs, silence.shape, generator=generator), silence)

    def _to_features(self, tokens: torch.Tensor) -> torch.Tensor:
        """Turn tokens into vectors, float ``[b, t, d]``."""
        pairs, blank = self.num_keys * self.num_values, self.num_blanks
        bounds = torch.tensor([blank, blank + pairs, blank + pairs + self.num_keys])
        kind = torch.bucketize(tokens.contiguous(), bounds, right=True)  # blank, cue, query, distractor
        start = torch.tensor([0, *bounds.tolist()])[kind]
        is_pair = kind % 2 == 1
        pair = torch.where(is_pair, tokens - start, 0)
        key = torch.where(is_pair, pair // self.num_values, torch.where(kind == 2, tokens - start, self.num_keys))
        value = torch.where(is_pair, pair % self.num_values, self.num_values)
        one_hot = torch.nn.functional.one_hot
        parts = (
            one_hot(torch.where(kind == 0, tokens, blank + kind - 1), blank + 3),
            one_hot(key, self.num_keys + 1)[..., :-1],  # the last one: no key
            one_hot(value, self.num_values + 1)[..., :-1],
        )
        return torch.cat(parts, -1).float()

    def _write(self, row: torch.Tensor, written: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        # An extra last column takes the steps beyond the row's end.
        steps, content = (part.flatten(1) for part in written)
        padded = torch.cat((row, row.new_zeros(row.shape[0], 1)), 1)
        return padded.scatter(1, steps.clamp(max=self.length), content)[:, : self.length]
