import h5py
import numpy as np
import pytest

from safemil.data import load, load_annotated, save
from safemil.errors import InputError


def arrays(**changes):
    """Seven steps as DSRL has them: an episode the task ended, one cut by time, one unfinished."""
    observations = np.arange(14.0).reshape(7, 2)
    return {
        "observations": observations,
        "next_observations": observations + 100,
        "actions": np.linspace(-1, 1, 7)[:, None],
        "rewards": np.arange(7.0),
        "costs": np.array([0, 1, 0, 1, 0, 1, 0.0]),
        "terminals": np.array([0, 1, 0, 0, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 1, 0, 0], bool),
    } | changes


@pytest.fixture
def hdf5(tmp_path):
    def write(options=None, **changes):
        with h5py.File(tmp_path / "log.hdf5", "w") as file:
            for name, values in arrays(**changes).items():
                if values is not None:
                    file.create_dataset(name, data=values, **(options or {}))
        return tmp_path / "log.hdf5"

    return write


def test_episodes_are_cut_at_terminals_and_timeouts_and_the_rest_is_kept(hdf5):
    held, marks = load_annotated(hdf5())
    assert held.lengths.tolist() == [2, 3, 2]
    assert held.terminated.tolist() == [True, False, False]
    assert held.final_observations.tolist() == [[102, 103], [108, 109], [112, 113]]
    assert held.has_final.all()
    assert marks.episode_sums(held.lengths)[1].tolist() == [1, 1, 1]


def test_without_next_observations_there_are_no_final_ones(hdf5):
    assert not load(hdf5(next_observations=None)).has_final.any()


def test_a_d4rl_file_without_costs_or_timeouts_is_read(hdf5):
    held = load(hdf5(costs=None, timeouts=None))
    assert held.lengths.tolist() == [2, 5]
    with pytest.raises(InputError, match='no "costs"'):
        load_annotated(hdf5(costs=None))


def test_compressed_flags_of_any_type_in_a_column_are_read(hdf5):
    flags = {name: arrays()[name].astype(np.float32)[:, None] for name in ("terminals", "timeouts")}
    path = hdf5({"compression": "gzip", "chunks": True}, **flags)
    assert load(path).lengths.tolist() == [2, 3, 2]


def test_bounds_scale_the_actions(hdf5):
    held = load(hdf5(actions=np.linspace(0, 4, 7)[:, None]), action_bounds=(0, 4))
    np.testing.assert_allclose(held.actions, arrays()["actions"], atol=1e-7)
    with pytest.raises(InputError, match=r'"actions\[0\]" holds 1\.33333, outside its bounds'):
        load(hdf5(actions=np.linspace(0, 4, 7)[:, None]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": None}, r'there is no "observations".*here: actions, costs'),
        ({"actions": None}, 'there is no "actions"'),
        ({"terminals": None, "timeouts": None}, 'need "terminals" or "timeouts"'),
        ({"actions": np.zeros((6, 1))}, r'"actions" must have 7 rows and 2 dimensions, not shape \(6, 1\)'),
        ({"costs": np.zeros(3)}, '"costs" must have 7 rows'),
        ({"observations": np.zeros(7)}, '"observations" must have any number of rows and 2 dimensions'),
        ({"next_observations": np.zeros((7, 3))}, "3 wide, the other observations 2"),
        ({"observations": np.full((7, 2), b"x")}, '"observations" must hold numbers'),
        ({"observations": np.full((7, 2), np.nan)}, "column 0 is nan at episode 0, step 0"),
        ({"next_observations": np.full((7, 2), np.inf)}, "column 0 is inf at the end of episode 0"),
        ({name: values[:0] for name, values in arrays().items()}, "has no rows"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(changes, message, hdf5):
    with pytest.raises(InputError, match=message) as caught:
        load(hdf5(**changes))
    assert "log.hdf5: " in str(caught.value)


def test_nothing_in_a_file_makes_us_read_another(hdf5, tmp_path):
    outside = tmp_path / "outside.hdf5"
    hdf5().rename(outside)
    layout = h5py.VirtualLayout((7, 2), np.float64)
    layout[:] = h5py.VirtualSource(str(outside), "observations", (7, 2))

    def link(file):
        file["observations"] = h5py.ExternalLink(str(outside), "observations")

    def link_on_the_way(file):
        file["elsewhere"] = h5py.ExternalLink(str(outside), "/")
        file["observations"] = h5py.SoftLink("/elsewhere/observations")

    def virtual(file):
        file.create_virtual_dataset("observations", layout)

    def stored_outside(file):
        file.create_dataset("observations", (7, 2), np.float64, external=[(str(outside), 0, 112)])

    for smuggle in (link, link_on_the_way, virtual, stored_outside):
        path = hdf5(observations=None)
        with h5py.File(path, "a") as file:
            smuggle(file)
        with pytest.raises(InputError, match="must be an array in the file itself"):
            load(path)


def test_other_readers_find_the_flat_arrays_of_dsrl(walk, marks, tmp_path):
    save(tmp_path / "log.hdf5", walk, marks)
    with h5py.File(tmp_path / "log.hdf5") as file:
        assert set(arrays()) <= set(file)
        assert np.flatnonzero(file["terminals"]).tolist() == [2]
        assert np.flatnonzero(file["timeouts"]).tolist() == [1, 5]
        np.testing.assert_array_equal(file["next_observations"][0], walk.observations[1])
        np.testing.assert_array_equal(file["next_observations"][1], walk.final_observations[0])
        assert np.isnan(file["next_observations"][2]).all()


def test_declared_shapes_are_compared_before_anything_is_read(hdf5):
    for name, shape in (
        ("observations", (10**12, 2)),
        ("costs", (10**12,)),
        ("next_observations", (7, 10**12)),
    ):
        path = hdf5(**{name: None})
        with h5py.File(path, "a") as file:
            file.create_dataset(name, shape, np.float64, chunks=True)  # 8 TB or more, none of it allocated
        with pytest.raises(InputError, match=r"must have \d+ rows|1000000000000 wide"):
            load(path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ids", np.arange(99)),
        ("ids", np.array(0)),
        ("has_final", np.ones(2, bool)),
        ("action_low", np.zeros(9)),
    ],
)
def test_extras_of_another_shape_are_refused(name, values, walk, tmp_path):
    save(tmp_path / "log.hdf5", walk)
    with h5py.File(tmp_path / "log.hdf5", "a") as file:
        del file[f"safemil/{name}"]
        file[f"safemil/{name}"] = values
    with pytest.raises(InputError, match="does not fit 6 steps and 2 action columns; write the file again"):
        load(tmp_path / "log.hdf5")
