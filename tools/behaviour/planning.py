"""A planner for Goal1 and Button1 that sees the whole simulated world: the teacher in distil_behaviour.py.

Each robot tries some 200 courses of the next 0.7 s in a coarse model of its motion, and takes the one that
costs the least time. Steps inside hazards, or in touch with things, count as so many steps of delay: that
price, and how far around things it is felt, are its care.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from safemil.tasks.button import BUTTONS, GREMLIN_TRAVEL, ButtonWorlds
from safemil.tasks.goal import GoalWorlds
from safemil.tasks.point import DT, FORCE_LIMIT, GEAR, MASS, SLIDE_DAMPING, TURN_DAMPING
from safemil.worlds import Worlds

HOLD = 2  # environment steps that make one step of a course
TICK = HOLD * DT  # s
LENGTH = 18  # steps of a course
TOP_SPEED = GEAR * FORCE_LIMIT / SLIDE_DAMPING  # m/s
TOP_SPIN = GEAR * FORCE_LIMIT / TURN_DAMPING  # rad/s, reached within a step
SERVO = GEAR / (TURN_DAMPING + GEAR * GEAR)  # rad/s that a unit of action settles at
DECAY = float(np.exp(-SLIDE_DAMPING * TICK / MASS))  # of speed in a tick
NEW, VARIED = 96, 95  # courses drawn anew, and around the last one
ALIKE = 1.5  # rad/s, between first turns that may be averaged
EVEN = 0.01  # s of delay that hardly tell two courses apart
TRAVEL = 1.2  # m/s, on the rest of the way
AHEAD = 0.15  # s for which the speed at a course's end is counted on
SMOOTH = 0.002  # s of delay per rad/s of change in turning
HAZARD, BODY, TIP = 0.2, 0.2, 0.15  # m, to what is touched: from the centre, and from the arrow's
ARROW = 0.1  # m from the centre to the arrow's
BULKY = 0.02  # m, by which a gremlin, a box, may reach farther than a button
WRONG_ROOM = 0.1  # m, around wrong buttons at most: the lit one may be near


class Scene(NamedTuple):
    """What n robots have around them, as of now."""

    robot: Array  # (n, 5): x, y, heading, velocity along x and y
    goal: Array  # (n, 2)
    hazards: Array  # (n, H, 2)
    buttons: Array  # (n, B, 2), the wrong ones
    gremlins: Array  # (n, G, 2)
    time: Array  # (n,) s, which says where on their circles gremlins are
    pause: Array  # (n,) s for which wrong buttons are free


class Care(NamedTuple):
    """What each robot minds, (n,) each."""

    hazard: Array  # delay that a unit of time in a hazard counts for
    margin: Array  # m around hazards in which the price rises; a wide one is easier to learn
    touch: Array  # delay that a unit of time in touch counts for
    room: Array  # m, the same around gremlins and buttons


class Reach(NamedTuple):
    """When a goal is met: m, from the robot's centre, or from its arrow's."""

    body: float
    tip: float


class Courses(NamedTuple):
    """(ticks, n) or (ticks, n, S)."""

    push: Array  # -1 to 1, of the full force
    spin: Array  # rad/s


def at_rest(n: int) -> Courses:
    return Courses(jnp.zeros((LENGTH, n)), jnp.zeros((LENGTH, n)))


@partial(jax.jit, static_argnames="reach")
def plan(key: Array, scene: Scene, last: Courses, care: Care, reach: Reach) -> tuple[Array, Courses]:
    """Actions (n, 2), and the courses they begin."""
    tried = candidates(key, last)
    late = delay(scene, tried, care, reach)  # (n, S)
    best = late.argmin(axis=1)  # (n,)
    push, spin = (jnp.take_along_axis(part, best[None, :, None], 2)[..., 0] for part in tried)
    # Of courses that begin alike and are nearly as good, the mean: the best alone is a matter of luck.
    alike = (tried.push[0] == push[0][:, None]) & (jnp.abs(tried.spin[0] - spin[0][:, None]) < ALIKE)
    weight = jax.nn.softmax(jnp.where(alike, -late / EVEN, -jnp.inf), axis=1)
    return jnp.stack([push[0], (weight * tried.spin[0]).sum(axis=1) / SERVO], axis=1), Courses(push, spin)


@jax.jit
def shifted(courses: Courses) -> Courses:
    """What is left of courses after a tick, their last step repeated."""
    return Courses(*(jnp.concatenate([part[1:], part[-1:]]) for part in courses))


def candidates(key: Array, last: Courses) -> Courses:
    """The last course, others that differ from it for a while, and new ones in three pieces."""
    drawn, varied = jax.random.split(key)
    push, spin = (part[..., None] for part in last)
    new, near = _new(drawn, push.shape[1]), _varied(varied, push, spin)
    return Courses(
        jnp.concatenate([push, near.push, new.push], axis=2),
        jnp.concatenate([spin, near.spin, new.spin], axis=2),
    )


def _new(key: Array, n: int) -> Courses:
    ends, pushes, spins, straight = jax.random.split(key, 4)
    tick = jnp.arange(LENGTH)[:, None, None]
    first, second = jnp.sort(jax.random.randint(ends, (2, n, NEW), 1, LENGTH), axis=0)
    push = jax.random.choice(pushes, jnp.array([-1.0, 0.0, 1.0, 1.0]), (3, n, NEW))
    spin = jnp.clip(2.0 * jax.random.normal(spins, (3, n, NEW)), -TOP_SPIN, TOP_SPIN)
    spin = jnp.where(jax.random.uniform(straight, spin.shape) < 0.15, 0.0, spin)

    def joined(pieces: Array) -> Array:
        return jnp.where(tick < first, pieces[0], jnp.where(tick < second, pieces[1], pieces[2]))

    return Courses(joined(push), joined(spin))


def _varied(key: Array, push: Array, spin: Array) -> Courses:
    ends, pushes, spins = jax.random.split(key, 3)
    n, tick = push.shape[1], jnp.arange(LENGTH)[:, None, None]
    first, end = jnp.sort(jax.random.randint(ends, (2, n, VARIED), 0, LENGTH + 1), axis=0)
    first = jnp.where(jnp.arange(VARIED) % 2, first, 0)  # half of them differ from now on
    now = (tick >= first) & (tick < end)
    kept = 2.0  # stands for the last course's push
    instead = jax.random.choice(pushes, jnp.array([-1.0, 0.0, 1.0, kept, kept]), (n, VARIED))
    turned = spin + 0.7 * jax.random.normal(spins, (n, VARIED))
    return Courses(
        jnp.where(now & (instead != kept), instead, push),
        jnp.where(now, jnp.clip(turned, -TOP_SPIN, TOP_SPIN), spin),
    )


def delay(scene: Scene, courses: Courses, care: Care, reach: Reach) -> Array:
    """(n, S), s: until the goal is met, with the price of what is run into on the way."""
    shape = courses.push.shape[1:]
    robot = [jnp.broadcast_to(part[:, None], shape) for part in scene.robot.T]
    hazard, margin, touch, room = (each[:, None] for each in care)

    def step(state: tuple[Array, ...], course: tuple[Array, ...]) -> tuple[tuple[Array, ...], None]:
        x, y, heading, u, v, met, late = state
        push, spin, passed = course
        x, y, heading, u, v = _moved(x, y, heading, u, v, push, spin)
        tip = x + ARROW * jnp.cos(heading), y + ARROW * jnp.sin(heading)
        met = met | (_nearest((x, y), scene.goal[:, None]) < reach.body)
        met = met | (_nearest(tip, scene.goal[:, None]) < reach.tip)
        late = late + jnp.where(met, 0.0, TICK)
        late = late + hazard * TICK * _inside(_nearest((x, y), scene.hazards), HAZARD, margin)
        wrong = _touching((x, y), tip, scene.buttons, jnp.minimum(room, WRONG_ROOM))
        wrong = jnp.where(met | (passed <= scene.pause[:, None] + 1e-6), 0.0, wrong)
        caught = _touching((x, y), tip, _circled(scene, passed), room + BULKY)
        late = late + touch * TICK * jnp.maximum(wrong, caught)
        return (x, y, heading, u, v, met, late), None

    passed = TICK * jnp.arange(1, LENGTH + 1)
    start = (*robot, jnp.zeros(shape, bool), jnp.zeros(shape))
    (x, y, _, u, v, met, late), _ = jax.lax.scan(step, start, (*courses, passed))
    turning = SMOOTH * jnp.abs(jnp.diff(courses.spin, axis=0)).sum(axis=0)
    return late + turning + jnp.where(met, 0.0, _rest(scene.goal, x, y, u, v, reach))


def _rest(goal: Array, x: Array, y: Array, u: Array, v: Array, reach: Reach) -> Array:
    """s, from a course's end to the goal."""
    dx, dy = goal[:, :1] - x, goal[:, 1:] - y
    distance = jnp.sqrt(dx * dx + dy * dy) + 1e-6
    closing = (u * dx + v * dy) / distance
    return jnp.maximum(distance - reach.body, 0.0) / TRAVEL + AHEAD * (1.0 - closing)


def _moved(
    x: Array, y: Array, heading: Array, u: Array, v: Array, push: Array, spin: Array
) -> tuple[Array, ...]:
    """The robot a tick later: it turns at once as told, and its speed lags behind."""
    middle = heading + 0.5 * TICK * spin
    gained = (1.0 - DECAY) * TOP_SPEED * push
    new_u, new_v = DECAY * u + gained * jnp.cos(middle), DECAY * v + gained * jnp.sin(middle)
    return x + 0.5 * TICK * (u + new_u), y + 0.5 * TICK * (v + new_v), heading + TICK * spin, new_u, new_v


def _nearest(point: tuple[Array, Array], things: Array) -> Array:
    """(n, S) m, to the nearest of things (n, K, 2); far if there are none."""
    x, y = point
    square = jnp.full(x.shape, 100.0)
    for k in range(things.shape[1]):
        dx, dy = x - things[:, k, :1], y - things[:, k, 1:]
        square = jnp.minimum(square, dx * dx + dy * dy)
    return jnp.sqrt(square)


def _inside(distance: Array, radius: float, margin: Array) -> Array:
    """1 within the radius, falling to 0 over the margin around it."""
    return jnp.clip(1.0 - (distance - radius) / margin, 0.0, 1.0)


def _touching(centre: tuple[Array, Array], tip: tuple[Array, Array], things: Array, room: Array) -> Array:
    body, arrow = _nearest(centre, things), _nearest(tip, things)
    return jnp.maximum(_inside(body, BODY, room), _inside(arrow, TIP, room))


def _circled(scene: Scene, passed: Array) -> Array:
    """Where the gremlins will be."""
    now, then = scene.time, scene.time + passed
    moved = jnp.stack([jnp.sin(then) - jnp.sin(now), jnp.cos(then) - jnp.cos(now)], axis=1)
    return scene.gremlins + GREMLIN_TRAVEL * moved[:, None]


def scene_of(worlds: Worlds) -> Scene:
    """The state of simulated worlds, as far as the planner needs it."""
    assert isinstance(worlds, GoalWorlds | ButtonWorlds)
    robots, n = worlds.robots, worlds.n
    (cos, sin), (u, v, _) = robots.frame.T, robots.velocity.T
    heading = robots.rotation + robots.q[:, 2]
    robot = np.stack([robots.pose.x, robots.pose.y, heading, cos * u - sin * v, sin * u + cos * v], axis=1)
    if isinstance(worlds, ButtonWorlds):
        others = (worlds.goal_button[:, None] + np.arange(1, BUTTONS)) % BUTTONS
        buttons, gremlins = worlds.buttons[np.arange(n)[:, None], others], worlds.gremlins
        time, pause = np.array([data.time for data in worlds.simulators.data]), DT * worlds.button_timer
    else:
        buttons, gremlins, time, pause = np.zeros((n, 0, 2)), np.zeros((n, 0, 2)), np.zeros(n), np.zeros(n)
    parts = (robot, worlds.goal_xy, worlds.hazards, buttons, gremlins, time, pause)
    return Scene(*(jnp.asarray(part, jnp.float32) for part in parts))
