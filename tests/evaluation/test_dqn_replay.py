"""Files of the DQN replay dataset, as small as they may be: what is read of them, and what is said of bad ones."""

import gzip

import numpy as np
import pytest

from recollect.evaluation.dqn_replay import read_array, read_dqn_replay


def write(folder, number, lengths, *, seed=0, tail=2, **others):
    """A buffer with games of these lengths and the beginning of another; frames name their row."""
    steps = int(np.sum(lengths)) + tail
    draw = np.random.default_rng(seed + number)
    terminal = np.zeros(steps, np.uint8)
    terminal[np.cumsum(lengths) - 1] = 1
    frames = np.zeros((steps, 4, 4), np.uint8)
    frames[:, 0, 0], frames[:, 0, 1] = np.arange(steps), number
    arrays = {
        "observation": frames,
        "action": draw.integers(0, 3, steps).astype(np.int32),
        "reward": draw.integers(-1, 2, steps).astype(np.float32),
        "terminal": terminal,
    } | others
    for name, array in arrays.items():
        with gzip.open(folder / f"$store$_{name}_ckpt.{number}.gz", "wb") as file:
            np.save(file, array)
    return arrays


def test_whole_games_with_every_reward_one_step_later(tmp_path):
    written = write(tmp_path, 3, [4, 2, 5])
    recording = read_dqn_replay(tmp_path, 11)
    assert recording.lengths.tolist() == [5, 3, 6] and recording.terminated.all()
    at = begin = 0
    for length in (4, 2, 5):
        rows = slice(at, at + length)
        frames = recording.observation[""][begin : begin + length + 1]
        assert frames[:, 0, 0].tolist() == [*range(at, at + length), at + length - 1]  # the last one stands twice
        assert recording.action[begin : begin + length].tolist() == written["action"][rows].tolist()
        assert recording.action[begin + length] == 0 and recording.reward[begin] == 0
        assert recording.reward[begin + 1 : begin + length + 1].tolist() == written["reward"][rows].tolist()
        at, begin = at + length, begin + length + 1
    assert recording.score.tolist() == [part.sum() for part in np.split(written["reward"][:11], [4, 6])]


def test_visits_go_from_buffer_to_buffer_and_depend_on_the_seed_alone(tmp_path):
    for number in range(4):
        write(tmp_path, number, [3] * 6)
    one, two = read_dqn_replay(tmp_path, 30, seed=1, visit=2), read_dqn_replay(tmp_path, 30, seed=1, visit=2)
    assert np.array_equal(one.observation[""], two.observation[""]) and len(one.lengths) == 10
    buffers = one.observation[""][:, 0, 1]
    assert len(set(buffers.tolist())) > 1
    for number in set(buffers.tolist()):  # always from the buffer's beginning on, two games a visit
        rows = one.observation[""][buffers == number][:, 0, 0]
        assert rows[0] == 0 and len(rows) % 8 == 0
    others = {tuple(read_dqn_replay(tmp_path, 30, seed=s, visit=2).observation[""][:, 0, 1]) for s in range(-2, 3)}
    assert len(others) > 1


@pytest.mark.parametrize("number", ["transitions", "visit", "used"])
def test_reading_nothing_is_refused(tmp_path, number):
    write(tmp_path, 0, [4, 4])
    with pytest.raises(ValueError, match=f"{'rows' if number == 'used' else number}=0"):
        read_dqn_replay(tmp_path, **{number: 0})


def test_only_the_first_steps_of_a_buffer_are_used(tmp_path):
    write(tmp_path, 0, [4, 4, 4])
    assert read_dqn_replay(tmp_path, 8, used=9).lengths.tolist() == [5, 5]
    with pytest.raises(ValueError, match="transitions=9: the buffers have 8 in whole trajectories; ask for fewer"):
        read_dqn_replay(tmp_path, 9, used=9)


def path(folder, part, number=0):
    return folder / f"$store$_{part}_ckpt.{number}.gz"


def test_files_that_are_cut_short_say_where(tmp_path):
    write(tmp_path, 0, [40, 40], observation=np.random.default_rng(0).integers(0, 256, (82, 4, 4)).astype(np.uint8))
    file = path(tmp_path, "observation")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"observation_ckpt\.0\.gz: .* in row \d+ of 80 .*cut short or damaged"):
        read_dqn_replay(tmp_path, 80)
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 40] = b"\xff" * 40
    file.write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match=r"observation_ckpt\.0\.gz: .*(damaged|not gzip)"):
        read_array(file, "u", 3)
    file.write_bytes(whole[:5])
    with pytest.raises(ValueError, match=r"observation_ckpt\.0\.gz: no NumPy array begins at byte 0"):
        read_dqn_replay(tmp_path, 80)


def test_files_that_are_something_else_are_named(tmp_path):
    written = write(tmp_path, 0, [4, 4])
    path(tmp_path, "reward").write_bytes(b"this is not gzip")
    with pytest.raises(ValueError, match=r"reward_ckpt\.0\.gz"):
        read_dqn_replay(tmp_path, 8)
    write(tmp_path, 0, [4, 4])
    path(tmp_path, "action").write_bytes(path(tmp_path, "observation").read_bytes())
    with pytest.raises(ValueError, match=r"action_ckpt\.0\.gz: holds uint8 \[10, 4, 4\].*is it another file"):
        read_dqn_replay(tmp_path, 8)
    write(tmp_path, 0, [4, 4], tail=4, reward=written["reward"])
    with pytest.raises(ValueError, match=r"the files of buffer 0 have other numbers of rows \(.*reward 10"):
        read_dqn_replay(tmp_path, 8)
    write(tmp_path, 0, [4, 4])
    for shape in (b"(10, -4, 4)", b"(10, 4, 4 "):
        header = gzip.decompress(path(tmp_path, "observation").read_bytes()).replace(b"(10, 4, 4)", shape)
        (tmp_path / "bad.gz").write_bytes(gzip.compress(header))
        with pytest.raises(ValueError, match=r"bad\.gz: (holds uint8|no NumPy array begins)"):
            read_array(tmp_path / "bad.gz", "u", 3)
    write(tmp_path, 0, [4, 4], terminal=np.full(10, 7, np.uint8))
    with pytest.raises(ValueError, match=r"terminal_ckpt\.0\.gz: row 0 is 7; 0 or 1"):
        read_dqn_replay(tmp_path, 8)
    write(tmp_path, 0, [4, 4], reward=np.full(10, np.nan, np.float32))
    with pytest.raises(ValueError, match=r"reward_ckpt\.0\.gz: row 0 is nan, no reward"):
        read_dqn_replay(tmp_path, 8)


@pytest.mark.parametrize(
    ("part", "like", "message"),
    [
        ("action", "terminal", r"action_ckpt\.0\.gz: its rows are those of the terminals: is it another file"),
        ("reward", "action", r"reward_ckpt\.0\.gz: holds int32 \[10\].*is it another file"),
        ("terminal", "reward", r"terminal_ckpt\.0\.gz: holds float32 \[10\].*is it another file"),
    ],
)
def test_files_under_each_other_s_names_are_named(tmp_path, part, like, message):
    write(tmp_path, 0, [4, 4])
    path(tmp_path, part).write_bytes(path(tmp_path, like).read_bytes())
    with pytest.raises(ValueError, match=message):
        read_dqn_replay(tmp_path, 8)


@pytest.mark.parametrize("wrong", [np.uint64(2**63 + 5), np.int32(-1)])
def test_actions_that_atari_does_not_have_are_named(tmp_path, wrong):
    action = np.zeros(10, wrong.dtype)
    action[3] = wrong
    write(tmp_path, 0, [4, 4], action=action)
    with pytest.raises(ValueError, match=rf"action_ckpt\.0\.gz: row 3 is {wrong}; Atari's actions are 0 to 17"):
        read_dqn_replay(tmp_path, 8)


@pytest.mark.parametrize("part", ["action", "terminal"])
def test_damage_behind_the_rows_that_are_read_is_found_where_files_are_small(tmp_path, part):
    write(tmp_path, 0, [4, 4], tail=3000)
    file = path(tmp_path, part)
    whole = file.read_bytes()
    header = gzip.decompress(whole)
    flipped = bytearray(whole)
    flipped[-6] ^= 1  # of the checksum
    damaged = (whole[:-4], bytes(flipped), gzip.compress(header[:-8]), gzip.compress(header + b"more"))
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{part}_ckpt\.0\.gz: .*(damaged, download|cut short)"):
            read_dqn_replay(tmp_path, 8, used=8)


def test_frames_are_checked_to_their_end_where_all_are_read(tmp_path):
    write(tmp_path, 0, [4, 4], tail=0)
    file = path(tmp_path, "observation")
    whole = bytearray(file.read_bytes())
    whole[-6] ^= 1
    file.write_bytes(bytes(whole))
    with pytest.raises(ValueError, match=r"observation_ckpt\.0\.gz: .*after the needed rows"):
        read_dqn_replay(tmp_path, 8)


@pytest.mark.parametrize("part", ["observation", "reward"])
def test_a_folder_under_the_name_of_a_file_is_named(tmp_path, part):
    write(tmp_path, 0, [4, 4])
    path(tmp_path, part).unlink()
    path(tmp_path, part).mkdir()
    with pytest.raises(ValueError, match=rf"{part}_ckpt\.0\.gz: cannot be read \(.*directory"):
        read_dqn_replay(tmp_path, 8)


def test_buffers_of_two_games_are_named(tmp_path):
    write(tmp_path, 0, [4, 4])
    write(tmp_path, 1, [4, 4], observation=np.zeros((10, 4, 2), np.uint8))
    with pytest.raises(ValueError, match=r"buffers have frames of \(4, 2\) and \(4, 4\)"):
        read_dqn_replay(tmp_path, 16)


def test_empty_and_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no \$store\$_observation_ckpt\.N\.gz in it"):
        read_dqn_replay(tmp_path, 8)
    write(tmp_path, 0, [4, 4])
    path(tmp_path, "reward").unlink()
    with pytest.raises(ValueError, match=r"reward_ckpt\.0\.gz: there is no such file"):
        read_dqn_replay(tmp_path, 8)
    write(tmp_path, 0, [4, 4], terminal=np.zeros(0, np.uint8))
    with pytest.raises(ValueError, match=r"rows=0: .*terminal_ckpt\.0\.gz has none"):
        read_dqn_replay(tmp_path, 8)
    path(tmp_path, "terminal").write_bytes(b"")
    with pytest.raises(ValueError, match=r"terminal_ckpt\.0\.gz: no NumPy array begins at byte 0"):
        read_dqn_replay(tmp_path, 8)
