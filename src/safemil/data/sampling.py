"""Episodes as JAX arrays, and random segments, bags and steps of them.

A segment is drawn in two stages: an episode uniformly, then a start uniformly among those that leave room
for H steps, so no segment crosses the end of an episode. An episode shorter than H is drawn as a whole and
padded, with a mask.
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from safemil.data.sources import Episodes, InMemory, InStore, Source, column_statistics
from safemil.data.trajectories import Annotations, Trajectories, is_constant
from safemil.errors import InputError

Length = int | Literal["full"]
MOST_EXACT = 2**24  # whole numbers up to here are exact in float32
ROWS_AT_ONCE = 8192  # steps per pass of a network over many steps: bounds the memory of its activations


class Scaler(NamedTuple):
    """Standardises observations: subtracts the mean and divides by the standard deviation."""

    mean: Float[Array, " S"]
    deviation: Float[Array, " S"]  # 1 for constant columns

    @staticmethod
    def of(trajectories: Episodes) -> "Scaler":
        """Measure mean and standard deviation of each column.

        A column is constant if its deviation is within rounding of its largest value: dividing by that
        would amplify noise.
        """
        if not isinstance(trajectories, Trajectories):
            mean, deviation = column_statistics(trajectories)
            return Scaler(jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32))
        observations = trajectories.observations
        mean = observations.mean(axis=0, dtype=np.float64)
        deviation = observations.std(axis=0, dtype=np.float64)
        constant = is_constant(deviation, np.abs(observations).max(axis=0))
        deviation = np.where(constant, 1.0, deviation)
        return Scaler(jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32))

    def __call__(self, observations: Float[Array, "*batch S"]) -> Float[Array, "*batch S"]:
        axes = tuple(range(observations.ndim - 1))
        return (observations - jnp.expand_dims(self.mean, axes)) / jnp.expand_dims(self.deviation, axes)


class HostRows(eqx.Module):
    """Rows of observations or actions that stay on the host: indexing copies the rows asked for.

    A callback gathers them inside the compiled program, so that an algorithm needs no code for it.
    """

    source: Source = eqx.field(static=True)
    kind: Literal["observations", "actions"] = eqx.field(static=True)
    shape: tuple[int, int] = eqx.field(static=True)
    scaler: Scaler | None

    def __getitem__(self, rows: Int[Array, "..."]) -> Float[Array, "... columns"]:
        width = self.shape[1]
        read = self.source.observations if self.kind == "observations" else self.source.actions

        def gather(rows: np.ndarray) -> np.ndarray:
            found = read(np.asarray(rows).reshape(-1))
            return np.ascontiguousarray(found).reshape(*rows.shape, width)

        shape = jax.ShapeDtypeStruct((*rows.shape, width), jnp.float32)  # type: ignore[no-untyped-call]
        found = jax.pure_callback(gather, shape, rows, vmap_method="expand_dims")
        return found if self.scaler is None else self.scaler(found)

    def __len__(self) -> int:
        return self.shape[0]


class Pile(eqx.Module):
    """Concatenated episodes as JAX arrays, observations standardised; or steps that stay on the host."""

    observations: Float[Array, "steps S"] | HostRows
    actions: Float[Array, "steps A"] | HostRows
    starts: Int[Array, " episodes"]  # row of each episode's first step
    lengths: Int[Array, " episodes"]
    final_observations: Float[Array, "episodes S"]
    has_final: Bool[Array, " episodes"]
    terminated: Bool[Array, " episodes"]
    marks: Bool[Array, " steps"]  # at which an incident is known to have happened; empty on the host
    stretch_ends: Int[Array, " steps"] | None  # row after the last step before a gap; None without gaps
    longest: int = eqx.field(static=True)
    discrete: bool = eqx.field(static=True)  # actions are choices, a column each
    known_good: int = eqx.field(static=True, default=0)  # of the episodes, the last ones

    @staticmethod
    def of(trajectories: Trajectories, scaler: Scaler, *, known_good: int = 0) -> "Pile":
        return Pile(
            observations=scaler(jnp.asarray(trajectories.observations)),
            actions=jnp.asarray(trajectories.actions),
            starts=jnp.asarray(trajectories.starts, jnp.int32),
            lengths=jnp.asarray(trajectories.lengths, jnp.int32),
            final_observations=scaler(jnp.asarray(trajectories.final_observations)),
            has_final=jnp.asarray(trajectories.has_final),
            terminated=jnp.asarray(trajectories.terminated),
            marks=jnp.asarray(trajectories.marks),
            stretch_ends=_stretch_ends(trajectories),
            longest=int(trajectories.lengths.max()),
            discrete=trajectories.action_categories is not None,
            known_good=known_good,
        )

    @staticmethod
    def on_host(episodes: Episodes, scaler: Scaler, *, known_good: int = 0) -> "Pile":
        """Make a pile whose steps stay in the memory of the host, or in a store."""
        held = isinstance(episodes, Trajectories)
        source: Source = InMemory(episodes) if held else InStore(episodes)  # type: ignore[arg-type]
        if episodes.steps >= 2**31:
            raise InputError(f"a pile may have {2**31 - 1:,} steps, got {episodes.steps:,}; divide it.")
        sizes = episodes.steps, episodes.observation_size, episodes.action_size
        return Pile(
            observations=HostRows(source, "observations", (sizes[0], sizes[1]), scaler),
            actions=HostRows(source, "actions", (sizes[0], sizes[2]), None),
            starts=jnp.asarray(episodes.starts, jnp.int32),
            lengths=jnp.asarray(episodes.lengths, jnp.int32),
            final_observations=scaler(jnp.asarray(episodes.final_observations)),
            has_final=jnp.asarray(episodes.has_final),
            terminated=jnp.asarray(episodes.terminated),
            marks=jnp.zeros(0, bool),
            stretch_ends=_stretch_ends(episodes),
            longest=int(episodes.lengths.max()),
            discrete=episodes.action_categories is not None,
            known_good=known_good,
        )

    @property
    def steps(self) -> int:
        return self.observations.shape[0]

    @property
    def observation_size(self) -> int:
        return self.observations.shape[1]

    @property
    def action_size(self) -> int:
        return self.actions.shape[1]


def _stretch_ends(trajectories: Episodes) -> Int[Array, " steps"] | None:
    """Row after the last of the steps without a gap that each step belongs to; None if there are no gaps."""
    after_gap = trajectories.after_gap
    if not after_gap.any():
        return None
    begins = after_gap.copy()
    begins[trajectories.starts] = True
    firsts = np.append(np.flatnonzero(begins), trajectories.steps)
    return jnp.asarray(firsts[np.cumsum(begins)], jnp.int32)


class Dataset(NamedTuple):
    """The data given to an algorithm: two piles, and true rewards and costs only if it declares the need.

    Episodes that are known to be good are the last ones of the unlabeled pile, which says how many they are.
    """

    unlabeled: Pile
    nonpreferred: Pile | None = None
    rewards: Float[Array, " steps"] | None = None  # of the unlabeled pile
    costs: Float[Array, " steps"] | None = None

    @staticmethod
    def of(
        scaler: Scaler,
        unlabeled: Episodes,
        nonpreferred: Trajectories | None = None,
        annotations: Annotations | None = None,
        preferred: Trajectories | None = None,
        *,
        on_host: bool = False,
    ) -> "Dataset":
        """Put the piles on the device; the steps of the unlabeled one stay on the host if asked for.

        Those of a store always do.
        """
        logs, known_good = unlabeled, 0
        if preferred is not None:
            if not isinstance(unlabeled, Trajectories):
                raise InputError(
                    "known good episodes can't be added to a store that stays in its files; read it with "
                    "`safemil.data.load`, or leave out `preferred=...`."
                )
            logs, known_good = Trajectories.concatenate([unlabeled, preferred]), len(preferred)
        if isinstance(logs, Trajectories) and not on_host:
            pile = Pile.of(logs, scaler, known_good=known_good)
        else:
            pile = Pile.on_host(logs, scaler, known_good=known_good)
        return Dataset(
            unlabeled=pile,
            nonpreferred=None if nonpreferred is None else Pile.of(nonpreferred, scaler),
            rewards=None if annotations is None else jnp.asarray(annotations.rewards),
            costs=None if annotations is None else jnp.asarray(annotations.costs),
        )

    @staticmethod
    def empty(
        observation_size: int, action_size: int, discrete: bool = False, *, episodes: int = 1
    ) -> "Dataset":
        """Make episodes of one step of zeros, which give an algorithm's networks their shapes."""
        observations, actions = np.zeros((episodes, observation_size)), np.zeros((episodes, action_size))
        one = Trajectories(observations, actions, np.ones(episodes, np.int64))
        # A pile whose episodes are that long allows any segment length.
        pile = dataclasses.replace(Pile.of(one, Scaler.of(one)), longest=sys.maxsize, discrete=discrete)
        return Dataset(pile, pile, jnp.zeros(episodes), jnp.zeros(episodes))


class Segments(NamedTuple):
    """Partial trajectories of length H; `mask` is 0 on the padding of episodes shorter than H."""

    observations: Float[Array, "*batch H S"]
    actions: Float[Array, "*batch H A"]
    mask: Float[Array, "*batch H"]
    rows: Int[Array, "*batch H"]  # row of each step in its pile


class Bags(NamedTuple):
    """Bags of K segments each, as indices into a pool of M segments."""

    pool: Segments  # (M, H, ...)
    members: Int[Array, "bags K"]


def sample_segments(pile: Pile, count: int, length: Length, key: Array) -> Segments:
    """Draw `count` segments: an episode uniformly with replacement, then a start uniformly.

    No segment crosses a gap in the log; whole episodes (`length="full"`) keep their gaps.
    """
    width = pile.longest if length == "full" else length
    bits = jax.random.bits(key, (2, count))
    episode = _below(bits[0], len(pile.lengths))
    if pile.stretch_ends is None or length == "full":
        steps = jnp.minimum(pile.lengths[episode], width)  # (count,) real steps of each segment
        first = pile.starts[episode] + _below(bits[1], pile.lengths[episode] - steps + 1)
    else:
        first = _start_in_stretch(pile, pile.stretch_ends, width, episode, bits[1])
        steps = jnp.minimum(width, pile.stretch_ends[first] - first)
    offset = jnp.arange(width)[None, :]
    inside = jnp.minimum(offset, steps[:, None] - 1)  # padding repeats the last step
    rows = first[:, None] + inside
    mask = (offset < steps[:, None]).astype(jnp.float32)
    return Segments(pile.observations[rows], pile.actions[rows], mask, rows)


def _start_in_stretch(
    pile: Pile, ends: Int[Array, " steps"], width: int, episode: Int[Array, " count"], bits: Array
) -> Int[Array, " count"]:
    """Draw a start in each episode that leaves room for `width` steps before the next gap, uniformly.

    Steps between two gaps that are fewer than `width` have one start, their first.
    """
    rows = jnp.arange(len(ends))
    begins = jnp.concatenate([jnp.ones(1, bool), ends[1:] != ends[:-1]])
    valid = ((rows + width <= ends) | begins).astype(jnp.int32)
    through = jnp.cumsum(valid)
    before = (through - valid)[pile.starts]  # (episodes,)
    starts = through[pile.starts + pile.lengths - 1] - before
    return jnp.searchsorted(through, before[episode] + _below(bits, starts[episode]) + 1)


def sample_bags(pile: Pile, *, bags: int, size: int, length: Length, pool: int | None, key: Array) -> Bags:
    """Draw bags of `size` segments each, with replacement.

    Without a `pool`, all segments of all bags are drawn from the pile. With one, `pool` segments are drawn
    from the pile and the bags from those. A bag is still `size` draws with replacement from the data, but
    bags share segments: the variance of a bag's score grows from σ²/K to about σ²(1/K + 1/M), while the
    network is applied to M segments instead of B·K.
    """
    key_pool, key_members = jax.random.split(key)
    if pool is None:
        members = jnp.arange(bags * size).reshape(bags, size)
        return Bags(sample_segments(pile, bags * size, length, key_pool), members)
    members = _below(jax.random.bits(key_members, (bags, size)), pool)
    return Bags(sample_segments(pile, pool, length, key_pool), members)


def sample_steps(pile: Pile, count: int, key: Array) -> Int[Array, " count"]:
    """Draw the rows of `count` steps, every step of the pile equally likely."""
    return draw_below(pile.steps, (count,), key)


def draw_below(bound: Array | int, shape: tuple[int, ...], key: Array) -> Int[Array, "..."]:
    """Draw integers in [0, bound)."""
    return _below(jax.random.bits(key, shape), bound)


def _below(bits: Array, bound: Array | int) -> Int[Array, "..."]:
    """Map random bits to integers in [0, bound), with a bias below bound / 2³².

    `jax.random.randint` removes that bias with a second draw, which took most of the time to compile an
    update.
    """
    return (bits % jnp.asarray(bound, jnp.uint32)).astype(jnp.int32)


def sample_steps_of(
    pile: Pile, chosen: Bool[Array, " episodes"], count: int, key: Array
) -> Int[Array, " count"]:
    """Draw the rows of `count` steps of the chosen episodes, each of their steps equally likely."""
    ends = jnp.cumsum(jnp.where(chosen, pile.lengths, 0))  # (episodes,) ends among the chosen steps
    place = jax.random.randint(key, (count,), 0, ends[-1])
    episode = jnp.searchsorted(ends, place, side="right")
    return pile.starts[episode] + place - (ends[episode] - pile.lengths[episode])


class Moments(NamedTuple):
    """Rows of a pile to draw from: the first `counts` ones from each episode's start on."""

    rows: Int[Array, " steps"]
    counts: Int[Array, " episodes"]


def moments(pile: Pile, window: int) -> Moments:
    """Find the `window` steps that end at each mark; all steps of the episodes without a mark."""
    step = jnp.arange(pile.steps)
    mark = jax.lax.cummin(jnp.where(pile.marks, step, len(step)), reverse=True)  # the next one
    near = (mark - step < min(window, len(step))) & (mark < spread(pile.starts + pile.lengths, pile))
    counts = episode_sums(near.astype(jnp.int32), pile)
    episode = spread(jnp.arange(len(pile.lengths)), pile)
    rows = jnp.argsort(2 * episode + ~near, stable=True)  # in each episode, the steps near a mark first
    return Moments(rows, jnp.where(counts > 0, counts, pile.lengths))


def draw_steps(cumulative: Float[Array, " steps"], count: int, key: Array) -> Int[Array, " count"]:
    """Draw the rows of `count` steps in proportion to their weights, given the cumulative sum of these."""
    places = cumulative[-1] * jax.random.uniform(key, (count,))
    return jnp.minimum(jnp.searchsorted(cumulative, places, side="right"), len(cumulative) - 1)


def draw_steps_of(kept: Bool[Array, " episodes"], pile: Pile, count: int, key: Array) -> Int[Array, " count"]:
    """Draw the rows of `count` steps of the kept episodes, as `draw_steps` does with weights of 1 and 0.

    Only sums over episodes are needed. Beyond 2²⁴ kept steps float32 has no number for each of them, and
    integers are drawn instead.
    """
    lengths = jnp.where(kept, pile.lengths, 0)
    through = jnp.cumsum(lengths)  # (episodes,) kept steps up to the end of each
    if pile.steps < MOST_EXACT:
        places = (through[-1] * jax.random.uniform(key, (count,))).astype(jnp.int32)
    else:
        places = draw_below(through[-1], (count,), key)
    episode = jnp.minimum(jnp.searchsorted(through, places, side="right"), len(lengths) - 1)
    offset = places - (through - lengths)[episode]
    return pile.starts[episode] + jnp.minimum(offset, pile.lengths[episode] - 1)


def episode_at(pile: Pile, rows: Int[Array, " count"]) -> Int[Array, " count"]:
    """Number of the episode that each row belongs to."""
    return jnp.searchsorted(pile.starts, rows, side="right") - 1


class Transitions(NamedTuple):
    """Steps with their next observations."""

    observations: Float[Array, "count S"]
    actions: Float[Array, "count A"]
    next_observations: Float[Array, "count S"]
    continues: Float[Array, " count"]  # 0 where the task ended the episode with this step
    known: Float[Array, " count"]  # 0 where the next observation was not recorded


def transitions_at(pile: Pile, rows: Int[Array, " count"]) -> Transitions:
    """Transitions at `rows`; after the last step of an episode comes its final observation, if recorded.

    The observation after a gap in the log is not the next one: it counts as not recorded.
    """
    episode = episode_at(pile, rows)
    last = rows == pile.starts[episode] + pile.lengths[episode] - 1
    after = pile.observations[jnp.minimum(rows + 1, pile.steps - 1)]
    ended = last & pile.terminated[episode]
    known = ~last | ended | pile.has_final[episode]
    if pile.stretch_ends is not None:
        known &= last | (pile.stretch_ends[rows] > rows + 1)
    return Transitions(
        observations=pile.observations[rows],
        actions=pile.actions[rows],
        next_observations=jnp.where(last[:, None], pile.final_observations[episode], after),
        continues=1.0 - ended,
        known=known.astype(jnp.float32),
    )


def sample_initial(pile: Pile, count: int, key: Array) -> Float[Array, "count S"]:
    """First observations of `count` episodes."""
    episode = jax.random.randint(key, (count,), 0, len(pile.starts))
    return pile.observations[pile.starts[episode]]


def map_steps(function: Callable[[Array, Array], Array], pile: Pile) -> Float[Array, " steps"]:
    """Apply a function of observations and actions to every step of a pile, a block of steps at a time."""
    if isinstance(pile.observations, HostRows):
        rows = jnp.minimum(jnp.arange(-(-pile.steps // ROWS_AT_ONCE) * ROWS_AT_ONCE), pile.steps - 1)

        def block(rows: Array) -> Array:
            return jax.vmap(function)(pile.observations[rows], pile.actions[rows])

        found = jax.lax.map(block, rows.reshape(-1, ROWS_AT_ONCE))
        return found.reshape(-1, *found.shape[2:])[: pile.steps]
    pairs = pile.observations, pile.actions
    return jax.lax.map(lambda pair: function(*pair), pairs, batch_size=ROWS_AT_ONCE)


def episode_sums(values: Float[Array, " steps"], pile: Pile) -> Float[Array, " episodes"]:
    """The sum of the values over each episode."""
    episode = spread(jnp.arange(len(pile.lengths)), pile)
    return jax.ops.segment_sum(values, episode, num_segments=len(pile.lengths))


def spread(values: Float[Array, " episodes"], pile: Pile) -> Float[Array, " steps"]:
    """Repeat each episode's value for each of its steps."""
    return jnp.repeat(values, pile.lengths, total_repeat_length=pile.steps)


def discounted_to_go(values: Float[Array, " steps"], pile: Pile, gamma: float) -> Float[Array, " steps"]:
    """Σ_{k≥t} γ^{k−t} values_k over the rest of the episode, for every step t."""
    ends = pile.starts + pile.lengths - 1
    decay = jnp.full(values.shape, gamma).at[ends].set(0.0)  # the next episode does not count

    def join(later: tuple[Array, Array], earlier: tuple[Array, Array]) -> tuple[Array, Array]:
        return later[0] * earlier[0], earlier[1] + earlier[0] * later[1]

    return jax.lax.associative_scan(join, (decay, values), reverse=True)[1]
