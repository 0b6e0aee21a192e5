"""The mutation script makes bugs of every kind, and the certificate finds them."""

import ast

import mutations
import pytest

SOURCE = """
def unroll(x, first, fresh, state):
    if x.shape[1] >= 2:
        raise ValueError(x + 1)
    state = torch.where(first, fresh, state)
    old = where_first(first, fresh, state)
    return x[:, 1:] - old.detach(), ~first
"""


def test_kinds_of_bugs():
    lines = set(range(1, 10))
    found = list(mutations.candidates("f.py", SOURCE, lines))
    kinds = {mutant.kind for mutant in found}
    assert kinds == {"comparison", "where", "missing reset", "off by one", "sign", "dropped detach", "mask"}
    for mutant in found:
        ast.parse(SOURCE[: mutant.start] + mutant.new + SOURCE[mutant.stop :])
        assert mutant.line != 4, "texts of errors stay unchanged"


@pytest.mark.slow
def test_planted_bugs_are_caught(tmp_path):
    (tmp_path / "src").symlink_to(mutations.ROOT / "src")
    mutants = mutations.plan(["lstm", "tlb"], 8, 0, tmp_path)
    caught = [bool(mutations.trial(*mutant, tmp_path)[0]) for mutant in mutants]
    assert sum(caught) >= 6
