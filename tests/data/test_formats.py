"""What is true of every format."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from safemil.data import Annotations, Trajectories, load, load_annotated, read_manifest, save
from safemil.errors import InputError

NAMES = {"parquet": "file.parquet", "hdf5": "file.hdf5", "csv": "file.csv", "store": "folder"}
CSV_NAMES = ("observation_names", "action_names")  # obs_0, ..., where the episodes had none
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
# With uneven bounds an action of 1e-30 is lost beside the middle of its range, in any float64 log too.
actions = st.floats(-1, 1, width=32).filter(lambda action: action == 0 or abs(action) > 1e-3)
words = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=5)


@st.composite
def datasets(
    draw: st.DrawFn, names: st.SearchStrategy[str] = words, by_name: bool = False
) -> tuple[Trajectories, Annotations]:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    episodes, steps = len(lengths), sum(lengths)
    wide, acting = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    ids = st.integers(-(2**63), 2**63 - 1) if draw(st.booleans()) else names
    low = draw(hnp.arrays(np.float64, acting, elements=st.floats(-100, 100)))
    unit = draw(st.booleans())
    found = draw(st.lists(ids, min_size=episodes, max_size=episodes, unique=True))
    held = Trajectories(
        observations=draw(hnp.arrays(np.float32, (steps, wide), elements=numbers)),
        actions=draw(hnp.arrays(np.float32, (steps, acting), elements=actions)),
        lengths=lengths,
        final_observations=draw(hnp.arrays(np.float32, (episodes, wide), elements=numbers)),
        has_final=draw(hnp.arrays(bool, episodes)),
        terminated=draw(hnp.arrays(bool, episodes)),
        action_low=None if unit else low,
        action_high=None if unit else low + draw(st.floats(0.1, 100)),
        ids=sorted(found) if by_name else found,
        first_steps=draw(st.lists(st.integers(0, 1000), min_size=episodes, max_size=episodes)),
    )
    marks = draw(hnp.arrays(np.float32, (2, steps), elements=numbers))
    return held, Annotations(*marks)


def assert_same(one: Trajectories, other: Trajectories, but: tuple[str, ...] = ()) -> None:
    # `reading` says how a file was read, which made episodes were not.
    for name in [each for each in Trajectories.__dataclass_fields__ if each not in (*but, "reading")]:
        np.testing.assert_array_equal(
            getattr(one, name), getattr(other, name), err_msg=name, strict=name != "ids"
        )


@pytest.mark.parametrize("format", ["parquet", "hdf5", "store"])
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_written_is_read_back_bit_for_bit(format, data, tmp_path):
    held, marks = data.draw(datasets())
    path = tmp_path / NAMES[format]
    save(path, held, marks, overwrite=True)
    again, annotations = load_annotated(path)
    assert_same(held, again)
    assert again.content_hash() == held.content_hash()
    np.testing.assert_array_equal(annotations.rewards, marks.rewards)
    np.testing.assert_array_equal(annotations.costs, marks.costs)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_csv_is_read_back_given_the_bounds_it_has_no_place_for(data, tmp_path):
    held, marks = data.draw(datasets(st.from_regex(r"run [a-z]{1,4}", fullmatch=True), by_name=True))
    save(tmp_path / "file.csv", held, marks, overwrite=True)
    bounds = (held.action_low, held.action_high)
    again, annotations = load_annotated(tmp_path / "file.csv", action_bounds=bounds)
    assert_same(held, again, but=CSV_NAMES)
    assert again.content_hash() == held.content_hash()
    np.testing.assert_array_equal(annotations.rewards, marks.rewards)


@pytest.mark.parametrize("format", NAMES)
def test_the_content_tells_the_format_not_the_name(format, walk, tmp_path):
    walk = walk.take([1, 2, 0])  # by name, as CSV gives them back
    save(tmp_path / "mystery.bin", walk, format=format)
    assert_same(walk, load(tmp_path / "mystery.bin"), but=CSV_NAMES)


@pytest.mark.parametrize("format", NAMES)
def test_rewards_and_costs_are_asked_for_or_stay_behind(format, walk, marks, tmp_path):
    walk = walk.renamed([1, 2, 3])
    plain, marked = tmp_path / f"plain-{NAMES[format]}", tmp_path / f"marked-{NAMES[format]}"
    save(plain, walk)
    save(marked, walk, marks)
    assert isinstance(load(marked), Trajectories)
    assert load_annotated(marked)[1].costs.tolist() == marks.costs.tolist()
    with pytest.raises(InputError, match=r'plain.*no "rewards?"'):
        load_annotated(plain)


@pytest.mark.parametrize("format", NAMES)
def test_only_overwrite_touches_what_is_there(format, walk, tmp_path):
    path = tmp_path / NAMES[format]
    save(path, walk)
    with pytest.raises(InputError, match="exists already"):
        save(path, walk.take([0]))
    assert len(load(path)) == 3
    save(path, walk.take([0]), overwrite=True)
    assert len(load(path)) == 1


@pytest.mark.parametrize("format", NAMES)
def test_a_folder_of_other_things_is_never_overwritten(format, walk, tmp_path):
    path = tmp_path / "precious"
    path.mkdir()
    (path / "thesis.txt").write_text("all of it")
    with pytest.raises(InputError, match=r"never overwritten|no file ever replaces"):
        save(path, walk, format=format, overwrite=True)
    assert (path / "thesis.txt").read_text() == "all of it"


FILL = """
import resource, sys
import numpy as np
from safemil.data import Trajectories, save
noise = np.random.default_rng(0).normal(size=(4000, 10))
episodes = Trajectories(noise, np.zeros((4000, 1)), [4000], final_observations=noise[:1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    save(sys.argv[1], episodes, overwrite=True)
except OSError as error:
    sys.exit(f"no room: {error}")
"""


@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("room", [100, 50_000])
def test_a_full_disk_is_reported_and_leaves_what_was_there(format, room, walk, tmp_path):
    walk = walk.renamed([1, 2, 3])
    path = tmp_path / NAMES[format]
    save(path, walk)
    done = subprocess.run([sys.executable, "-c", FILL, str(path), str(room)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("no room: ")
    assert done.stderr.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert_same(walk, load(path), but=CSV_NAMES)


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(InputError, match=r"there is no file or folder .*nowhere\.parquet"):
        load(tmp_path / "nowhere.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"just some words\n", "none of the formats that can be read: parquet, hdf5, store, lerobot"),
        (bytes(range(256)) * 10, "none of the formats"),
        (b"a,b\0c,d\n", "none of the formats"),
        (b"PAR1 and then nothing of the kind", "Parquet file is damaged or cut short"),
        (b"\x89HDF\r\n\x1a\n and then nothing of the kind", "HDF5 file is damaged or cut short"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "hdf5", "csv"])
def test_a_file_of_another_kind_is_refused_whatever_its_name(content, message, suffix, tmp_path):
    path = tmp_path / f"file.{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("format", ["parquet", "hdf5"])
@pytest.mark.parametrize("part", [0.02, 0.5, 0.99])
def test_a_file_cut_short_is_refused(format, part, walk, tmp_path):
    path = tmp_path / NAMES[format]
    save(path, walk)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(InputError, match="damaged or cut short"):
        load(path)


def test_a_folder_that_is_no_store_is_answered_with_the_stores_in_it(walk, tmp_path):
    with pytest.raises(InputError, match=r"not a store; it has no dataset\.json"):
        load(tmp_path)
    save(tmp_path / "unlabeled", walk)
    with pytest.raises(InputError, match=r"give one of the stores in it \(unlabeled\)"):
        load(tmp_path)


def test_what_a_format_can_not_use_is_refused(walk, marks, tmp_path):
    with pytest.raises(InputError, match='no format "parkett"; did you mean "parquet"'):
        save(tmp_path / "a", walk, format="parkett")
    with pytest.raises(InputError, match="only a store keeps a manifest"):
        save(tmp_path / "a.parquet", walk, manifest={"seed": 1})
    with pytest.raises(InputError, match="6 steps, but 2 are annotated"):
        save(tmp_path / "a", walk, Annotations([1, 2], [1, 2]))
    assert not list(tmp_path.iterdir())


def test_a_reward_that_is_no_number_is_named_with_its_place(walk, tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("episode,step,obs_0,act_0,reward,cost\n4,0,1,0,1,0\n4,1,1,0,nan,0\n")
    assert load(path).steps == 2
    with pytest.raises(InputError, match=r'must be finite.*"reward" is nan at episode 4, step 1'):
        load_annotated(path)


def test_a_manifest_is_kept_by_the_store(walk, tmp_path):
    manifest = {"task": "disc", "seeds": [1, 2], "note": "größer"}
    save(tmp_path / "store", walk, manifest=manifest)
    assert read_manifest(tmp_path / "store") == manifest
    with pytest.raises(InputError, match="can't be read"):
        read_manifest(Path(tmp_path))
