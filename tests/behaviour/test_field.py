import numpy as np

from safemil.behaviour.field import LIDARS, drive

GOAL1 = LIDARS["SafetyPointGoal1-v0"]
BUTTON1 = LIDARS["SafetyPointButton1-v0"]
CAREFUL = np.array([[2.0, 0.1, 1.0, 1.5, 1.0, 1.5, 0.0]])
CARELESS = np.array([[0.0, 0.1, 1.0, 1.5, 1.0, 1.5, 0.0]])


def echo(distance, angle):
    """A lidar that sees one thing, as the tasks compute it."""
    place = (angle % (2 * np.pi)) / (2 * np.pi / 16)
    near, share, strength = int(place), place % 1, 1 - distance / 3
    lidar = np.zeros(16)
    lidar[near], lidar[(near + 1) % 16], lidar[near - 1] = strength, share * strength, (1 - share) * strength
    return lidar


def seen(*lidars):
    return np.concatenate([np.zeros(12), *lidars])[None]


def test_it_drives_straight_at_a_goal_ahead_and_turns_to_one_aside():
    nothing = np.zeros(16)
    ahead, left, right = (
        drive(GOAL1, CARELESS, seen(echo(1.0, angle), nothing, nothing))[0] for angle in (0.0, 0.8, -0.8)
    )
    np.testing.assert_allclose(ahead, [1, 0], atol=1e-9)
    assert left[1] > 0.5
    assert right[1] < -0.5


def test_care_makes_it_turn_away_from_a_hazard_on_its_way():
    observation = seen(echo(1.5, 0.0), echo(0.5, 0.1), np.zeros(16))
    assert drive(GOAL1, CARELESS, observation)[0, 1] == 0
    assert drive(GOAL1, CAREFUL, observation)[0, 1] < -0.1  # the hazard is a little to the left


def test_a_hazard_beyond_the_goal_does_not_matter():
    observation = seen(echo(0.4, 0.0), echo(0.9, 0.0), np.zeros(16))
    assert drive(GOAL1, CAREFUL, observation)[0, 1] == 0


def test_the_lit_button_is_no_obstacle_and_another_one_is():
    nothing = np.zeros(16)
    alone = seen(echo(0.8, 0.0), echo(0.8, 0.0), nothing, nothing)
    assert drive(BUTTON1, CAREFUL, alone)[0, 1] == 0
    another = seen(echo(0.4, 0.1), echo(1.5, 0.0), nothing, nothing)
    assert drive(BUTTON1, CAREFUL, another)[0, 1] < -0.1


def test_it_steers_against_its_drift():
    observation = seen(echo(1.0, 0.0), np.zeros(16), np.zeros(16))
    observation[0, 4] = 0.5  # m/s to the left
    assert drive(GOAL1, CARELESS, observation)[0, 1] < 0


def test_rows_may_have_numbers_of_their_own():
    observation = seen(echo(1.5, 0.0), echo(0.5, 0.1), np.zeros(16))
    both = drive(GOAL1, np.concatenate([CARELESS, CAREFUL]), np.concatenate([observation, observation]))
    np.testing.assert_array_equal(both[:1], drive(GOAL1, CARELESS, observation))
    np.testing.assert_array_equal(both[1:], drive(GOAL1, CAREFUL, observation))
