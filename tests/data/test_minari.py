"""Minari datasets that Minari itself writes."""

import contextlib
import json
import shutil
import warnings

import h5py
import minari
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from minari.data_collector import EpisodeBuffer

from safemil.cli import main
from safemil.data import Columns, load
from safemil.data.formats import read
from safemil.data.interchange import Options
from safemil.errors import InputError, InputWarning
from safemil.runs import RunDirectory

FILE = "data/main_data.hdf5"
LENGTHS = [3, 1, 4]
STORAGES = ["hdf5", "arrow", "parquet"]
SPEED = Box(-np.inf, np.inf, (2,))
PEDAL = Box(np.array([-6, 0], np.float32), np.array([6, 10], np.float32))
ABOUT = dict.fromkeys(["algorithm_name", "author", "author_email", "code_permalink", "description"], "none")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")  # that no environment is recorded


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write episodes with Minari: samples of the spaces, and arrays of infos with one row per observation."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def write(storage="hdf5", observation=SPEED, action=PEDAL, name="car/drive-v0", **infos):
        observation.seed(1), action.seed(2)
        rng = np.random.default_rng(0)
        buffers = []
        for number, length in enumerate(LENGTHS):
            buffers.append(
                EpisodeBuffer(
                    id=number,
                    observations=stacked(observation, length + 1),
                    actions=stacked(action, length),
                    rewards=[*rng.normal(size=length)],
                    terminations=[False] * (length - 1) + [number == 1],
                    truncations=[False] * (length - 1) + [number != 1],
                    infos={key: draw(rng, length + 1, shape) for key, shape in infos.items()} or None,
                )
            )
        made = minari.create_dataset_from_buffers(
            name,
            buffers,
            observation_space=observation,
            action_space=action,
            data_format=storage,
            **ABOUT,
        )
        return tmp_path / name, [*made.iterate_episodes()]

    return write


def draw(rng, count, shape):
    values = rng.normal(size=(count, *shape))
    return values if shape else [*values]


def stacked(space, count):
    """Samples of a space, as the collector of Minari stacks them."""
    if isinstance(space, Dict):
        return {name: stacked(each, count) for name, each in space.items()}
    if isinstance(space, Tuple):
        return tuple(stacked(each, count) for each in space)
    samples = [space.sample() for _ in range(count)]
    return samples if isinstance(space, Text) else np.array(samples)


@pytest.mark.parametrize("storage", STORAGES)
def test_what_minari_wrote_is_read(storage, written):
    path, episodes = written(storage)
    contents = read(path, Options())
    held = contents.trajectories
    assert held.lengths.tolist() == LENGTHS
    assert held.terminated.tolist() == [False, True, False]
    assert held.has_final.all()
    for got, each in zip(held.by_episode(held.observations), episodes, strict=True):
        np.testing.assert_array_equal(got, each.observations[:-1].astype(np.float32))
    np.testing.assert_array_equal(held.final_observations, [each.observations[-1] for each in episodes])
    np.testing.assert_allclose(
        held.recorded_actions(), np.concatenate([each.actions for each in episodes]), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(contents.rewards, np.concatenate([each.rewards for each in episodes]))
    assert (held.action_low.tolist(), held.action_high.tolist()) == ([-6, 0], [6, 10])
    assert contents.manifest["minari"]["dataset_id"] == "car/drive-v0"


def test_all_storages_hold_the_same(written):
    hashes = {load(written(storage, name=f"{storage}-v0")[0]).content_hash() for storage in STORAGES}
    assert len(hashes) == 1


def test_a_dataset_is_found_by_its_id(written, tmp_path, monkeypatch):
    path, _ = written()
    assert load("car/drive-v0").content_hash() == load(path).content_hash()
    with pytest.raises(InputError, match="there is no file or folder car/walk-v0"):
        load("car/walk-v0")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "car"))
    with pytest.raises(InputError, match="there is no file or folder"):
        load("../car/drive-v0")


@pytest.mark.parametrize("storage", STORAGES)
def test_parts_of_a_space_are_columns(storage, written):
    space = Dict(
        gap=Box(-1, 1, (2, 2)),
        lane=Discrete(3),
        more=Tuple([MultiDiscrete([2, 5]), Dict(lights=MultiBinary(2))]),
    )
    path, episodes = written(storage, observation=space)
    held = load(path)
    first = episodes[0].observations
    expected = [
        *first["gap"][1].ravel(),
        first["lane"][1],
        *first["more"][0][1],
        *first["more"][1]["lights"][1],
    ]
    np.testing.assert_array_equal(held.observations[1], np.array(expected, np.float32))
    chosen = load(path, columns=Columns(observation="lane,gap[2]"))
    np.testing.assert_array_equal(chosen.observations, held.observations[:, [4, 2]])


@pytest.mark.parametrize("storage", STORAGES)
def test_infos_are_read_if_asked_for(storage, written):
    path, episodes = written(storage, force=(), wind=(2,), cost=())
    plain, held = load(path), load(path, columns=Columns(observation="observation, infos.wind"))
    np.testing.assert_array_equal(held.observations[:, :2], plain.observations)
    assert read(path, held.reading).trajectories.content_hash() == held.content_hash()
    winds = np.concatenate([each.infos["wind"][:-1] for each in episodes])
    np.testing.assert_array_equal(held.observations[:, 2:], winds.astype(np.float32))
    costs = np.concatenate([each.infos["cost"][1:] for each in episodes])  # of the step, after the action
    np.testing.assert_array_equal(read(path, Options()).costs, costs)
    forces = np.concatenate([each.infos["force"][1:] for each in episodes])
    np.testing.assert_array_equal(read(path, Options(Columns(cost="infos.force"))).costs, forces)


@pytest.mark.parametrize("storage", STORAGES)
def test_discrete_actions_are_choices(storage, written):
    path, episodes = written(storage, action=Discrete(4, start=-1))
    held = load(path)
    assert held.action_categories == ("-1", "0", "1", "2")
    taken = np.concatenate([each.actions for each in episodes])
    np.testing.assert_array_equal(held.actions.argmax(axis=1) - 1, taken)
    assert read(path, held.reading).trajectories.content_hash() == held.content_hash()
    numbers = load(path, action_kind="continuous")
    assert (numbers.action_low.item(), numbers.action_high.item()) == (-1, 2)
    np.testing.assert_allclose(numbers.recorded_actions()[:, 0], taken, atol=1e-6)


@pytest.mark.parametrize("storage", STORAGES)
def test_pictures_and_texts_are_passed_over_with_a_warning(storage, written):
    space = Dict(camera=Box(0, 255, (32, 40, 3), np.uint8), speed=SPEED, word=Text(5))
    path, _ = written(storage, observation=space)
    with pytest.warns(InputWarning, match="passed over camera, word: pictures and texts are not read"):
        assert load(path).observation_size == 2
    with pytest.warns(InputWarning), pytest.raises(InputError, match=r'no feature .*"camera".*all: speed'):
        load(path, columns=Columns(observation="camera"))


def test_bounds_that_are_not_finite_have_to_be_given(written):
    path, _ = written(action=Box(-np.inf, np.inf, (1,)))
    with pytest.raises(InputError, match=r"outside its bounds -1 to 1 .* give the action bounds"):
        load(path)
    assert load(path, action_bounds=(-9, 9)).action_high == 9


def damaged(path, **entries):
    file = path / "data" / "metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))
    return path


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"total_steps": 9}, "declares 9 steps, but the episodes have 8"),
        ({"total_episodes": 4}, 'there is no "episode_3"'),
        ({"total_episodes": 0}, "no episodes"),
        ({"total_episodes": "three"}, '"total_episodes" in .* must be a whole number'),
        ({"total_steps": -1}, "must be a whole number"),
        ({"data_format": "zarr"}, '"data_format" must be hdf5, arrow or parquet'),
        ({"observation_space": 3}, "must be a text"),
        ({"observation_space": "[" * 100_000}, "is damaged"),
        ({"observation_space": '{"type": "Graph"}'}, "is a Graph, which can't be read"),
        ({"observation_space": '{"type": "Box"}'}, "is damaged"),
        (
            {"observation_space": '{"type":"Box","dtype":"f","shape":[3],"low":[0,0,0],"high":[1,1,1]}'},
            "must have 4 rows of 3 numbers",
        ),
        (
            {"observation_space": '{"type":"Box","dtype":"f","shape":[1000000000000],"low":0,"high":1}'},
            "at most 65536",
        ),
        ({"action_space": '{"type":"MultiBinary","n":[1e6,1e6]}'}, "at most 65536"),
        ({"action_space": '{"type":"Discrete","n":"many"}'}, "is damaged"),
        ({"action_space": '{"type":"Text"}'}, "has no numbers"),
    ],
)
@pytest.mark.filterwarnings("ignore::safemil.errors.InputWarning")
def test_wrong_metadata_is_refused(entries, message, written):
    with pytest.raises(InputError, match=message):
        load(damaged(written()[0], **entries))


def test_an_array_that_was_never_filled_is_refused(written):
    path, _ = written()
    with h5py.File(path / FILE, "a") as file:
        for name, shape in {
            "observations": (10**9 + 1, 2),
            "actions": (10**9, 2),
            "rewards": (10**9,),
        }.items():
            del file["episode_2"][name]
            file["episode_2"].create_dataset(name, shape, np.float64, chunks=True)
    with pytest.raises(InputError, match=r"declares 16,000,000,016 bytes, but the file holds 0"):
        load(damaged(path, total_steps=10**9 + 4))


def test_nothing_in_a_dataset_makes_us_read_another_file(written, tmp_path):
    path, _ = written()
    shutil.copytree(path, tmp_path / "other")
    with h5py.File(path / FILE, "a") as file:
        del file["episode_1"]
        file["episode_1"] = h5py.ExternalLink(
            str(tmp_path / "other" / "data" / "main_data.hdf5"), "episode_1"
        )
    with pytest.raises(InputError, match='"episode_1" must be a group in the file itself'):
        load(path)


@pytest.mark.parametrize("storage", STORAGES)
def test_damaged_files_are_answered_with_one_message(storage, written):
    path, _ = written(storage)
    rng = np.random.default_rng(0)
    for file in (path / "data" / "metadata.json", *sorted(path.rglob(f"*.{storage}"))[:1]):
        whole = file.read_bytes()
        for _ in range(20):
            broken = bytearray(whole[: rng.integers(1, len(whole) + 1)])
            broken[rng.integers(len(broken))] ^= int(rng.integers(1, 256))
            file.write_bytes(broken)
            with contextlib.suppress(InputError):
                load(path)
        file.write_bytes(whole)
    assert load(path).steps == sum(LENGTHS)


def test_a_run_trained_from_an_id_is_found_without_minaris_folder(written, tmp_path, monkeypatch):
    written(), written(name="car/crash-v0")
    piles = ["--unlabeled", "car/drive-v0", "--nonpreferred", "car/crash-v0"]
    tiny = ["--set", "updates=2", "--set", "hidden_policy=[4]", "--out", str(tmp_path / "run")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # both hold the same episodes
        assert main(["train", "bc", *piles, *tiny]) == 0
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    paths, _ = RunDirectory(tmp_path / "run").read_sources()
    assert [path.resolve() for path in paths["unlabeled"]] == [tmp_path / "car" / "drive-v0"]
