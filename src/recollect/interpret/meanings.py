"""What the measures of a page mean, in a phrase each; the modules that compute them have the definitions."""

MEANINGS = {
    "recall@1, boundaries": "recall@1 after the first observation was repeated, which moves the boundaries of chunks",
    "recall@1, chunks of": "recall@1 with chunks of another length",
    "recall@": "decisions at which the most attended memory has the cue",
    "mass on key": "attention on the steps that the decision depends on",
    "lift": "mass on key, divided by its chance level",
    "localisation AUC": "attention as a detector of the cue's steps among all past steps",
    "choice": "decisions at which the cue has more attention than the other events of its kind",
    "latency": "from the start of a question to the first recall of the cue",
    "persistence": "later steps of a question that recall the cue again",
    "span90": "steps back that hold 90 % of the attention",
    "effective number": "how many steps are attended to: exp(entropy)",
    "surprise": "attention, without its profile by lag, as a detector of steps with a reward (AUC)",
    "neighbours": "of two different chunks recalled in a row, how often they are neighbours",
    "lag-only share": "how much of the attention distance alone explains",
    "staticness": "1: the same map at every step",
    "removal KL of all": "change of the policy without the whole memory",
    "removal KL": "change of the policy without the memory of the cue",
    "removal |dV|": "change of the value without the memory of the cue",
    "cue swap followed": "with the cue of another episode in its memory, the agent gives that episode's answer",
    "memory swap followed": "with the memory of another episode, the agent gives that episode's answer",
    "success with the": "success with nothing but the most attended memories",
    "deletion AUC": "probability of the chosen action as memories are removed, most attended first: lower is better",
    "insertion AUC": "probability of the chosen action as memories are put back, most attended first: higher is better",
    "recall-success coupling": "success of episodes that recall the cue, less that of those that do not",
    "distance between heads": "how far apart the maps of two heads of a kind are: 0 equal, 1 disjoint",
    "pointing": "steps at which the highest place of the map is on an object that matters",
    "mass on things": "share of the map on objects that matter",
    "right": "where objects look alike: how often the highest place is on the one that matters",
    "deletion of places": "probability of the chosen action as places are blurred, highest first: lower is better",
    "insertion of places": "probability of the chosen action as places return, highest first: higher is better",
    "IoU of": "overlap of the highest places of both maps, divided by their union",
    "attended and used, top-2 overlap": "of the two most attended memories, how many are the two most used",
    "attended and used, Pearson": "correlation of attention to a memory with the effect of its removal",
    "decision kept": "decisions that stay the same when the boundaries of chunks move",
}
"""Phrases by the beginning of a measure's name; the longest beginning counts."""


def meaning_of(measure: str) -> str:
    """Return the phrase for a measure; empty where there is none."""
    starts = [start for start in MEANINGS if measure.startswith(start)]
    return MEANINGS[max(starts, key=len)] if starts else ""
