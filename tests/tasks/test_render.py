import numpy as np
import pytest

from safemil.cli.tasks import list_tasks, render
from safemil.errors import InputError
from safemil.tasks import TASKS, TaskEnv
from safemil.tasks.engine import mujoco


def can_draw():
    try:
        mujoco.GLContext(16, 16).free()
    except Exception:
        return False
    return True


needs_gl = pytest.mark.skipif(
    not can_draw(), reason="neither EGL nor OSMesa works here (libegl1, libosmesa6)"
)


def share(picture, colour):
    """Share of the pixels that look much like a colour."""
    return float((np.abs(picture / 255 - np.array(colour)).max(axis=2) < 0.16).mean())


@needs_gl
@pytest.mark.parametrize("name", TASKS)
def test_a_picture_has_the_size_asked_for_and_something_on_it(name):
    env = TaskEnv(name, render_mode="rgb_array", width=120, height=90)
    env.reset(seed=0)
    picture = env.render()
    env.close()
    assert picture.shape == (90, 120, 3)
    assert picture.dtype == np.uint8
    assert picture.std() > 10


@needs_gl
def test_things_are_told_apart_by_colour():
    env = TaskEnv("SafetyPointButton1-v0", render_mode="rgb_array")
    env.reset(seed=3)
    picture = env.render()
    env.close()
    colours = {"robot": (0.8, 0.15, 0.15), "hazard": (0.45, 0.48, 0.93), "gremlin": (0.5, 0.2, 0.7)}
    for colour in (*colours.values(), (0.2, 0.7, 0.35), (0.9, 0.55, 0.13)):  # lit button, buttons
        assert share(picture, colour) > 2e-4


@needs_gl
def test_the_picture_shows_the_present():
    env = TaskEnv("SafetyPointGoal1-v0", render_mode="rgb_array", width=96, height=96)
    env.reset(seed=0)
    first = env.render()
    for _ in range(40):
        env.step(np.ones(2))
    assert not np.array_equal(first, env.render())
    env.close()


def test_without_a_render_mode_nothing_is_drawn():
    env = TaskEnv("SafetyPointGoal1-v0")
    env.reset(seed=0)
    assert env.render() is None


@needs_gl
# imageio forks to start ffmpeg, which replaces the fork at once: no lock of JAX can be caught in it.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_the_command_writes_pictures_and_videos(tmp_path, capsys):
    for name in ("swim.png", "swim.mp4"):
        render("SafetySwimmerVelocity-v1", tmp_path / name, steps=3, size=64)
        assert (tmp_path / name).stat().st_size > 500
        assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / name)


def test_unknown_file_endings_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.mp4 or \.png"):
        render("SafetySwimmerVelocity-v1", tmp_path / "swim.bmp")


def test_where_nothing_can_draw_the_message_names_the_packages(monkeypatch):
    def no_context(*size):
        raise RuntimeError("no device")

    monkeypatch.setattr(mujoco, "GLContext", no_context)
    env = TaskEnv("SafetyPointGoal1-v0", render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(InputError, match="libegl1"):
        env.render()


def test_the_list_names_every_task(capsys):
    list_tasks()
    printed = capsys.readouterr().out
    assert all(name in printed for name in TASKS)
