from pathlib import Path

import numpy as np
import pytest

from safemil.cli.tasks import verify as verify_command
from safemil.errors import InputError
from safemil.tasks import TASKS
from safemil.tasks.verify import replay

RECORDINGS = Path(__file__).parent / "recordings"


def altered(tmp_path, name, change):
    """A copy of a recording with `change` applied to its arrays."""
    arrays = dict(np.load(RECORDINGS / f"{name}.npz"))
    change(arrays)
    path = tmp_path / f"{name}.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("name", TASKS)
def test_the_original_is_reproduced(name):
    result = replay(RECORDINGS / f"{name}.npz")
    assert result.passed
    ordinary = ~result.first_touch
    assert result.observation_error[ordinary].max() < 1e-8
    assert result.reward_error[ordinary].max() < 1e-9
    assert result.resets >= 9
    assert result.free_rows > 40


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("key", ["next_obs", "reward"])
def test_an_error_above_tolerance_is_found_in_its_row(name, key, tmp_path):
    def change(arrays):
        arrays[key][7] += 2e-7

    assert replay(altered(tmp_path, name, change)).wrong_rows() == [7]


@pytest.mark.parametrize("key", ["cost", "terminated", "truncated"])
def test_a_flipped_flag_is_found(key, tmp_path):
    def change(arrays):
        arrays[key][3] = 1 - arrays[key][3]

    result = replay(altered(tmp_path, "SafetyWalker2dVelocity-v1", change))
    assert result.wrong_rows() == [3]
    assert getattr(result, f"{key}_wrong").sum() == 1


def test_a_cost_part_that_should_be_missing_is_found(tmp_path):
    def change(arrays):
        paused = np.flatnonzero(np.isnan(arrays["info_cost_buttons"]))
        arrays["info_cost_buttons"][paused[0]] = 0.0

    assert replay(altered(tmp_path, "SafetyPointButton1-v0", change)).cost_wrong.sum() == 1


def test_one_wrong_bit_of_a_layout_is_found(tmp_path):
    def change(arrays):
        arrays["extra_goal_xy"][0, 0] = np.nextafter(arrays["extra_goal_xy"][0, 0], 9)

    result = replay(altered(tmp_path, "SafetyPointGoal1-v0", change))
    assert len(result.reset_errors) == 1
    assert "goal_xy" in result.reset_errors[0]


def test_a_wrong_goal_of_an_episode_is_found(tmp_path):
    def change(arrays):
        arrays["next_goal_xy"][2, 0] += 1e-12

    result = replay(altered(tmp_path, "SafetyPointGoal1-v0", change))
    assert result.goal_wrong.sum() == 1
    assert not result.passed


def test_only_first_touches_of_gremlins_have_the_wider_tolerance(tmp_path):
    result = replay(RECORDINGS / "SafetyPointButton1-v0.npz")
    assert (result.observation_error > 1e-7).sum() == 2
    assert result.first_touch[result.observation_error > 1e-7].all()

    def change(arrays):
        arrays["next_touch_gremlins"][:] = False

    assert len(replay(altered(tmp_path, "SafetyPointButton1-v0", change)).wrong_rows()) == 2


def test_nan_in_a_recording_is_wrong_not_right(tmp_path):
    def change(arrays):
        arrays["next_obs"][5, 0] = np.nan

    assert replay(altered(tmp_path, "SafetySwimmerVelocity-v1", change)).wrong_rows() == [5]


def test_the_command_prints_a_table_and_says_by_its_code_whether_all_agrees(tmp_path, capsys):
    good = RECORDINGS / "SafetySwimmerVelocity-v1.npz"
    assert verify_command((good,)) == 0
    assert "SafetySwimmerVelocity-v1" in capsys.readouterr().out

    def change(arrays):
        arrays["reward"][4] += 1.0

    bad = altered(tmp_path, "SafetySwimmerVelocity-v1", change)
    assert verify_command((good, bad)) == 1
    assert "row 4" in capsys.readouterr().out


def test_what_is_no_recording_is_answered_with_what_is_missing(tmp_path):
    text = tmp_path / "notes.npz"
    text.write_text("not a recording")
    with pytest.raises(InputError, match="not a recording"):
        replay(text)
    path = altered(tmp_path, "SafetyPointButton1-v0", lambda arrays: arrays.pop("mocap_pos"))
    with pytest.raises(InputError, match="lacks mocap_pos"):
        replay(path)
    with pytest.raises(InputError, match="at least one"):
        verify_command(())
