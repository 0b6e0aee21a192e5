import pytest
import torch

from recollect.cores.tlb.chunks import plan_chunks, whole_chunks


def rows_of(choice, batch):
    return [choice] * batch if isinstance(choice, bool) else choice.tolist()


@pytest.mark.parametrize("stretch", [None, 1, 3])
@pytest.mark.parametrize("chunk_len", [1, 3, 5])
def test_a_plan_is_what_counting_step_by_step_gives(chunk_len, stretch):
    """Several calls; each row is counted by hand, with a list per chunk of the steps (numbered over all calls)."""
    batch, begun = 4, 0
    position = torch.zeros(batch, dtype=torch.long)
    age, chunk = [0] * batch, [[] for _ in range(batch)]  # steps of the running episode, steps of the running chunk
    for t in (1, 7, 2, 16, 1, 1, 9):
        is_first = torch.rand(batch, t) < 0.15
        plan = plan_chunks(is_first, position, chunk_len, stretch)
        marks, n = plan.marks, len(plan.source)
        assert len(marks.first) == len(marks.cut) == len(marks.done) == len(marks.keys) == n
        first, cut, done = ([rows_of(c, batch) for c in part] for part in (marks.first, marks.cut, marks.done))
        for row in range(batch):
            chunks = [[list(chunk[row]), False, age[row] // chunk_len]] if chunk[row] else []
            for step in range(t):
                if is_first[row, step]:
                    age[row], chunk[row] = 0, []
                if not chunk[row]:
                    chunks.append([[], bool(is_first[row, step]), age[row] // chunk_len])
                chunk[row].append(begun + step)
                chunks[-1][0].append(begun + step)
                age[row] += 1
                if len(chunk[row]) == chunk_len:
                    chunk[row] = []
            # A chunk that a reset cuts off before it gets a step in this call does not appear.
            chunks = [c for c in chunks if c[0][-1] >= begun]
            assert len(chunks) <= n
            for i, (steps, opens, number) in enumerate(chunks):
                want = [step - begun + chunk_len - 1 for step in steps]
                nothing = [chunk_len - 1 + t] * (chunk_len - len(steps))
                assert plan.source[i, row].tolist() == want + nothing
                assert first[i][row] == opens
                assert done[i][row] == (len(steps) == chunk_len)
                assert cut[i][row] == (stretch is not None and number > 0 and number % stretch == 0)
                for place, step in enumerate(steps):
                    if step >= begun:
                        assert plan.place[row, step - begun] == i * chunk_len + place
            for i in range(len(chunks), n):
                assert not (first[i][row] or done[i][row] or cut[i][row])
                assert plan.source[i, row].eq(chunk_len - 1 + t).all()
        position, begun = plan.position, begun + t
        assert (position % chunk_len).tolist() == [len(c) for c in chunk]
        assert position.max() < chunk_len * (1 if stretch is None else stretch + 1)


def test_whole_sequences_mark_padding():
    padding = torch.tensor([[False] * 7, [False, True, False, True, True, True, True]])
    marks = whole_chunks(padding, 7, 3, 2, device=torch.device("cpu"))
    assert [rows_of(c, 2) for c in marks.done] == [[True, True], [True, False], [True, False]]
    assert [rows_of(c, 2) for c in marks.empty] == [[False, False], [False, True], [False, True]]
    assert [None if k is None else k.tolist() for k in marks.keys] == [
        [[True, True, True], [True, False, True]],
        [[True, True, True], [False, False, False]],
        [[True, False, False], [False, False, False]],
    ]
    assert marks.cut == [False, False, True]
    assert not marks.trailing
    short = whole_chunks(None, 7, 3, device=torch.device("cpu"))
    assert short.done == [True] * 3
    assert short.keys[:2] == [None, None]
    assert short.keys[2].tolist() == [[True, False, False]]
    assert short.trailing
