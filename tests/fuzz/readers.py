"""Cases of files of episodes: Parquet, CSV, HDF5 and stores."""

import decimal
import json
import shutil
from collections.abc import Callable
from typing import Any

import h5py
import hostile
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from case import Case, command, examine, require
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from safemil.data.interchange import Columns, Options
from safemil.data.trajectories import digest

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64())
LONG = pa.array(np.zeros(40_001_000, np.int8))
BOUNDS = (-2.0, 2.0)  # of the actions in the materials


def parquet(case: Case) -> None:
    table = damaged_table(case, pq.read_table(case.materials / "logs.parquet"))
    path = case.folder / "logs.parquet"
    try:
        pq.write_table(
            table,
            path,
            compression=case.rng.choice(["zstd", "none", "snappy", "gzip"]),
            use_dictionary=case.rng.random() < 0.5,
            row_group_size=case.rng.choice([1, 7, 1000]),
            version=case.rng.choice(["1.0", "2.6"]),
        )
    except (pa.ArrowException, OSError, ValueError):  # a type that Parquet can't hold
        return
    if case.rng.random() < 0.2:
        path.write_bytes(hostile.damaged_bytes(path.read_bytes(), case.rng))
    _read(case, path)


def parquet_bytes(case: Case) -> None:
    path = case.folder / "logs.parquet"
    path.write_bytes(hostile.damaged_bytes((case.materials / "logs.parquet").read_bytes(), case.rng))
    _read(case, path)


def csv(case: Case) -> None:
    lines = (case.materials / "logs.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines]
    for _ in range(case.rng.choice([1, 1, 2, 5])):
        _damage_rows(case, rows)
    separator = case.rng.choice([",", ",", ",", ";", "\t"])
    end = case.rng.choice(["\n", "\n", "\r\n", "\r"])
    content = end.join(separator.join(row) for row in rows).encode("utf-8", "surrogatepass")
    kind = case.rng.random()
    if kind < 0.05:
        content = b"\xef\xbb\xbf" + content
    elif kind < 0.08:
        content = content.decode("utf-8", "replace").encode("utf-16")
    elif kind < 0.2:
        content = hostile.damaged_bytes(content, case.rng)
    path = case.folder / "logs.csv"
    path.write_bytes(content)
    if case.rng.random() < 0.15:
        kind, path = 0.0, _packed(case, content)
    contents = _read(case, path)
    if contents is not None and kind >= 0.2:
        _check_numbers(contents.trajectories.observations, rows)


def _packed(case: Case, content: bytes) -> Any:
    """A compressed file, sometimes with many more rows, or damaged."""
    suffix, codec = case.rng.choice([("gz", "gzip"), ("zst", "zstd")])
    row = (content.splitlines() or [b""])[-1][:100] + b"\n"
    if case.rng.random() < 0.3:
        content += b"\n" + row * case.rng.choice([10_000, 50_000_000 // len(row)])
    path = case.folder / f"logs.csv.{suffix}"
    packed = pa.Codec(codec).compress(content, asbytes=True)
    path.write_bytes(packed if case.rng.random() < 0.7 else hostile.damaged_bytes(packed, case.rng))
    return path


def hdf5(case: Case) -> None:
    path = case.folder / "logs.hdf5"
    shutil.copy(case.materials / "logs.hdf5", path)
    with h5py.File(path, "r+") as file:
        for _ in range(case.rng.choice([1, 1, 2])):
            damage_hdf5(case, file)
    if case.rng.random() < 0.1:
        path.write_bytes(hostile.damaged_bytes(path.read_bytes(), case.rng))
    _read(case, path)


def hdf5_bytes(case: Case) -> None:
    path = case.folder / "logs.hdf5"
    path.write_bytes(hostile.damaged_bytes((case.materials / "logs.hdf5").read_bytes(), case.rng))
    _read(case, path)


def store(case: Case) -> None:
    """A store with changed arrays or description; half of them with hashes that fit."""
    path = case.folder / "logs"
    shutil.copytree(case.materials / "logs", path)
    described = json.loads((path / "dataset.json").read_text())
    arrays = load_file(path / "arrays.safetensors")
    honest = load_file(path / "arrays.safetensors")
    if case.rng.random() < 0.6:
        for _ in range(case.rng.choice([1, 1, 2])):
            _damage_arrays(case, arrays)
        if case.rng.random() < 0.7:
            _forge(described, arrays)
    else:
        described = hostile.damaged_document(described, case.rng, case.values)
    try:
        save_file(arrays, path / "arrays.safetensors")
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError):
        return
    (path / "dataset.json").write_bytes(hostile.json_text(described, case.rng))
    contents = _read(case, path)
    if contents is not None and "hashes" in described and described["hashes"] == _hashes(honest):
        held = contents.trajectories
        require(np.array_equal(held.observations, honest["observations"]), "changed observations accepted")
        require(np.array_equal(held.lengths, honest["lengths"]), "changed lengths were accepted")


def store_bytes(case: Case) -> None:
    path = case.folder / "logs"
    shutil.copytree(case.materials / "logs", path)
    file = path / case.rng.choice(["arrays.safetensors", "arrays.safetensors", "dataset.json"])
    file.write_bytes(hostile.damaged_bytes(file.read_bytes(), case.rng))
    contents = _read(case, path)
    if contents is not None:
        content = json.loads((case.materials / "logs" / "dataset.json").read_text())["hashes"]["content"]
        require(contents.trajectories.content_hash() == content, "a damaged store was accepted")


def options(case: Case) -> None:
    """How a log is read, with values from a stranger's run: column names, bounds, rules for empty cells."""
    rng = case.rng
    whole = Options(Columns(observation=("obs_0", "obs_1"), action="act_*"), BOUNDS).to_dict()
    whole |= {"fills": [{"pattern": "obs_*", "value": 0.5}], "max_gap": 1.5, "incident": "cost=1"}
    whole |= {"incident_episodes": ["trip 1"], "action_kind": "continuous", "lenient": True}
    kept = {name: value for name, value in whole.items() if rng.random() < 0.6 or name == "action_bounds"}
    chosen = Options.from_dict(hostile.damaged_document(kept, rng, case.values))
    examine(case, case.materials / rng.choice(["logs.csv", "logs.parquet", "logs.hdf5", "logs"]), chosen)


def _read(case: Case, path: Any) -> Any:
    """Read by the library, sometimes with options, or by a command."""
    case.prepared()
    kind = case.rng.random()
    if kind < 0.08:
        command(case, "data", "info", path, *case.rng.choice([[], ["--json"]]))
    elif kind < 0.14:
        out = case.folder / f"out{case.rng.choice(['.csv', '.parquet', '.hdf5', ''])}"
        command(case, "data", "convert", path, out)
    elif kind < 0.18:
        command(
            case, "data", "split", path, "--nonpreferred", 1, "--unlabeled", 2, "--out", case.folder / "s"
        )
    elif ".csv" in path.name or (kind < 0.4 and path.suffix == ".parquet"):
        return examine(case, path, Options(_columns(case), BOUNDS))
    else:
        return examine(case, path)
    return None


def _columns(case: Case) -> Columns:
    if case.rng.random() < 0.7:
        return Columns()
    texts = ["obs_*", "act_*", "obs_0,obs_1", "*", "episode", "", ",", "action", *hostile.TEXTS[:8]]
    return Columns(observation=case.rng.choice([None, *texts]), action=case.rng.choice([None, *texts]))


def _check_numbers(values: Any, rows: list[list[str]]) -> None:
    """Every number that was read stands in the file."""
    known = set()
    for row in rows:
        for field in row:
            try:
                known.add(float(np.float32(field.strip().strip('"'))))
            except ValueError:
                known.add({"true": 1.0, "false": 0.0}.get(field.strip().lower(), 0.0))
    strange = [value for value in values.ravel().tolist() if value + 0.0 not in known]
    require(not strange, f"the file does not hold {strange[:3]}")


# Tables


def damaged_table(case: Case, table: pa.Table) -> pa.Table:
    """Change columns, names, rows or metadata of a table."""
    rng = case.rng
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(table.num_columns) if table.num_columns else 0
        kind = rng.choice(["column"] * 6 + ["rename", "repeat", "drop", "rows", "bounds", "values", "values"])
        if not table.num_columns:
            break
        if kind == "column":
            table = table.set_column(at, table.column_names[at], strange_array(case, table.num_rows))
        elif kind == "values":
            table = table.set_column(at, table.column_names[at], _strange_values(case, table.column(at)))
        elif kind == "rename":
            names = [*table.column_names]
            names[at] = rng.choice([*_texts(), *names, "obs_0", "obs_" + "9" * 5000])
            table = table.rename_columns(names)
        elif kind == "repeat":
            name = rng.choice([table.column_names[at], "obs_0", "obs_1", "act_0"])
            table = table.append_column(name, table.column(at))
        elif kind == "drop":
            table = table.remove_column(at)
        elif kind == "rows":
            count = table.num_rows
            rows = rng.choice(
                [[], [0] * count, list(range(count))[::-1], rng.choices(range(max(count, 1)), k=9)]
            )
            table = table.take(pa.array(rows, pa.int64())) if count else table
        else:
            low, high = (rng.choice(case.values) for _ in range(2))
            bounds = rng.choice([{"action_low": low, "action_high": high}, low, {"action_low": [2, 2]}])
            text = hostile.json_text(bounds, rng) if rng.random() < 0.8 else rng.randbytes(9)
            table = table.replace_schema_metadata({b"safemil": text, b"x": b"y" * 1000})
    return table


def _texts() -> list[str]:
    return [text for text in hostile.TEXTS if "\ud800" not in text]


def strange_array(case: Case, rows: int) -> pa.Array:
    """A column of any type that Parquet can hold."""
    rng = case.rng
    makers: list[Callable[[], pa.Array]] = [
        lambda: pa.array([rng.randrange(-3, 100) if rng.random() < 0.9 else None for _ in range(rows)]),
        lambda: pa.array([rng.randrange(100) for _ in range(rows)], rng.choice(INTEGERS)),
        lambda: pa.array(_numbers(case, rows), pa.float64()),
        lambda: pa.array(_numbers(case, rows), pa.float64()).cast(pa.float32(), safe=False),
        lambda: pa.array(np.zeros(rows, np.float16)),
        lambda: pa.array([2**64 - 1] * rows, pa.uint64()),
        lambda: pa.array([2**63 - 1 - i for i in range(rows)], pa.int64()),
        lambda: pa.array([rng.choice([True, False, None]) for _ in range(rows)]),
        lambda: pa.array(rng.choices(_texts(), k=rows)),
        lambda: pa.array(rng.choices(_texts(), k=rows), pa.large_string()),
        lambda: pa.array([str(i % 3) for i in range(rows)]).dictionary_encode(),
        lambda: pa.array([None, *"abc"] * rows)[:rows].dictionary_encode(),
        lambda: _invalid_text(rows),
        lambda: pa.array([b"\xff\xfe"] * rows),
        lambda: pa.array([decimal.Decimal("1.5")] * rows, pa.decimal128(38, 2)),
        lambda: pa.array([decimal.Decimal(10) ** 70] * rows, pa.decimal256(76, 0)),
        lambda: pa.array([rng.randrange(10**9) for _ in range(rows)], pa.timestamp(rng.choice(["s", "ns"]))),
        lambda: pa.array([rng.randrange(10**4) for _ in range(rows)], pa.date32()),
        lambda: pa.array([1] * rows, pa.duration("ms")),
        lambda: pa.nulls(rows),
        lambda: pa.nulls(rows, pa.list_(pa.float32())),
        lambda: pa.array([[1.0] * (rng.choice([2, 2, 2, 0, 3])) for _ in range(rows)]),
        lambda: pa.array([[1.0, None]] * rows),
        lambda: pa.array([[]] * rows, pa.list_(pa.float64())),
        lambda: pa.array([[[1.0]]] * rows),
        lambda: pa.array([["a", "b"]] * rows),
        lambda: pa.array(
            [[1.0, 2.0] if rng.random() < 0.8 else None for _ in range(rows)], pa.list_(pa.float32(), 2)
        ),
        lambda: pa.array([[0.5]] * rows, pa.large_list(pa.float64())),
        lambda: pa.array([{"a": 1}] * rows),
        lambda: pa.array([[("k", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([list(range(3000))] * rows),
        lambda: _long_list(rows),
        lambda: pa.array(np.zeros(rows)).cast(pa.float32()).dictionary_encode(),
    ]
    return rng.choice(makers)()


def _numbers(case: Case, rows: int) -> list[float]:
    usual = [0.1, 0.5, -0.5, 1.0]
    floats = [float(each) for each in hostile.NUMBERS if abs(each) < 10**308 or isinstance(each, float)]
    return [case.rng.choice(floats if case.rng.random() < 0.1 else usual) for _ in range(rows)]


def _strange_values(case: Case, column: pa.ChunkedArray) -> pa.Array:
    """Another value of the same type in one row."""
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:  # it was damaged before
        return column
    if not values:
        return column
    row = case.rng.randrange(len(values))
    values[row] = case.rng.choice([None, values[case.rng.randrange(len(values))], *_alike(case, values[row])])
    try:
        return pa.array(values, column.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return column


def _alike(case: Case, value: Any) -> list[Any]:
    if isinstance(value, str):
        return _texts()
    if isinstance(value, list):
        return [
            [],
            [*value, 1.0],
            value[:-1],
            [None] * len(value),
            [float("nan")] * len(value),
            [1e300] * len(value),
        ]
    return hostile.NUMBERS


def _long_list(rows: int) -> pa.Array:
    """Lists of one number, and one of forty million."""
    offsets = [*range(rows), rows - 1 + 40_000_000] if rows else [0]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), LONG[: offsets[-1]])


def _invalid_text(rows: int) -> pa.Array:
    """A column of text whose bytes are not UTF-8."""
    offsets = np.arange(0, 2 * rows + 1, 2, dtype=np.int32).tobytes()
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfe" * rows)]
    )


def _damage_rows(case: Case, rows: list[list[str]]) -> None:
    rng = case.rng
    if len(rows) < 2 or not rows[0]:
        return
    row = rng.randrange(1, len(rows)) if rng.random() < 0.75 else 0
    column = rng.randrange(len(rows[row])) if rows[row] else 0
    kind = rng.choice(["field"] * 8 + ["drop", "swap", "repeat", "cut", "column", "empty", "quote", "header"])
    if kind == "field" and rows[row]:
        numbers = [str(each) for each in hostile.NUMBERS if abs(each) < 10**30 or isinstance(each, float)]
        numbers += [
            "9" * 5000,
            "1e999",
            "0x10",
            "1_000",
            "1,5",
            "-",
            "+1",
            "1.0.0",
            "NaN",
            "#N/A",
            "null",
            "true",
        ]
        rows[row][column] = rng.choice([*numbers, *hostile.TEXTS])
    elif kind == "drop":
        del rows[row]
    elif kind == "swap":
        other = rng.randrange(1, len(rows))
        rows[row], rows[other] = rows[other], rows[row]
    elif kind == "repeat":
        rows.insert(row, [*rows[row]])
    elif kind == "cut":
        rows[row] = rows[row][:column] + ([] if rng.random() < 0.5 else ["", "", "1"])
    elif kind == "column":
        for each in rows:
            each.insert(min(column, len(each)), rng.choice(["", "x", "1", "obs_0"]))
    elif kind == "empty":
        del rows[rng.choice([1, len(rows) - 1]) :]
    elif kind == "quote" and rows[row]:
        rows[row][column] = rng.choice(['"', '"a', 'a"b', '""', '"a\nb"', "'"])
    else:
        rows[0] = [rng.choice([name, name.upper(), f" {name}", rows[0][0], ""]) for name in rows[0]]


# HDF5


def damage_hdf5(case: Case, file: h5py.File) -> None:
    rng = case.rng
    names: list[str] = []
    file.visit(names.append)
    name = rng.choice([*names, "rewards", "infos", "safemil/ids"])
    try:
        old, is_there = file.get(name), name in file
    except (RuntimeError, OSError):  # a link to itself, from an earlier change
        return
    shape = old.shape if isinstance(old, h5py.Dataset) and old.shape else (30,)
    if is_there and not (rng.random() < 0.1):
        del file[name]
    if name.startswith("safemil/") and "safemil" not in file:
        return
    shape = tuple(min(size, 40) for size in shape)
    rows = shape[0]
    text = h5py.string_dtype()
    makers: list[Callable[[], Any]] = [
        lambda: None,  # deleted
        lambda: file.create_group(name),
        lambda: file.create_dataset(name, data=h5py.Empty("f4")),
        lambda: file.create_dataset(name, data=h5py.Empty(text)),
        lambda: file.create_dataset(name, data=rng.choice(hostile.NUMBERS[:14])),
        lambda: file.create_dataset(name, shape=(10**9,), dtype="f4", chunks=(1000,)),
        lambda: file.create_dataset(name, shape=(rows, 10**8), dtype="f4", chunks=(1, 1000)),
        lambda: file.create_dataset(
            name, shape=shape, maxshape=(None,) * len(shape), chunks=tuple([2**14] * len(shape)), dtype="f8"
        ),
        lambda: file.create_dataset(name, data=np.zeros((4000, 4000)), compression="gzip"),
        lambda: file.create_dataset(
            name, data=np.zeros(shape, rng.choice(["f2", "f8", "i1", "u8", "i8", ">f4", "?"]))
        ),
        lambda: file.create_dataset(name, data=np.full(shape, rng.choice([np.nan, np.inf, 1e300, -7.0]))),
        lambda: file.create_dataset(name, data=np.full(shape, rng.choice([2**64 - 1, 2**63]), "u8")),
        lambda: file.create_dataset(name, data=np.full(shape, 2**63 - 1, "i8")),
        lambda: file.create_dataset(name, data=np.zeros((*shape, 2))),
        lambda: file.create_dataset(name, data=np.zeros(shape[:-1])),
        lambda: file.create_dataset(name, data=np.zeros((rows + 1, *shape[1:]))),
        lambda: file.create_dataset(name, data=np.zeros((0, *shape[1:]))),
        lambda: file.create_dataset(name, data=np.zeros((rows, 0))),
        lambda: file.create_dataset(name, data=np.zeros(shape, "c16")),
        lambda: file.create_dataset(name, data=np.zeros(shape, [("a", "f4"), ("b", "i4")])),
        lambda: file.create_dataset(name, data=np.zeros(shape, "S5")),
        lambda: file.create_dataset(name, data=[b"\xff\xfe"] * rows, dtype=h5py.string_dtype("ascii")),
        lambda: file.create_dataset(name, data=[rng.choice(_plain_texts()) for _ in range(rows)], dtype=text),
        lambda: file.create_dataset(name, data=["same"] * rows, dtype=text),
        lambda: file.create_dataset(name, shape=(rows,), dtype=h5py.string_dtype(length=200_000)),
        lambda: file.create_dataset(name, shape=(rows,), dtype=h5py.vlen_dtype(np.float32)),
        lambda: file.create_dataset(name, shape=(rows,), dtype=h5py.ref_dtype),
        lambda: file.create_dataset(name, shape=(rows,), dtype=h5py.regionref_dtype),
        lambda: file.create_dataset(name, shape=shape, dtype=h5py.enum_dtype({"A": 0, "B": 1})),
        lambda: file.create_dataset(name, shape=(rows,), dtype=np.dtype("V16")),
        lambda: file.create_dataset(name, shape=(rows,), dtype=np.dtype(("f4", (1000,)))),
        lambda: file.create_dataset(name, shape=shape, dtype="f4", external=[("/etc/passwd", 0, 100_000)]),
        lambda: file.__setitem__(name, h5py.ExternalLink("/etc/passwd", "/")),
        lambda: file.__setitem__(name, h5py.ExternalLink(str(case.materials / "logs.hdf5"), "/actions")),
        lambda: file.__setitem__(name, h5py.SoftLink("/" + name)),
        lambda: file.__setitem__(name, h5py.SoftLink(rng.choice(["/", "/actions", "/nowhere"]))),
        lambda: file.__setitem__(name, file["/"]),
        lambda: file.create_virtual_dataset(name, _virtual(case, shape)),
        lambda: file.__setitem__(name, np.dtype("f4")),
    ]
    try:
        rng.choice(makers)()
    except (
        ValueError,
        TypeError,
        OSError,
        RuntimeError,
        KeyError,
        IndexError,
        UnicodeEncodeError,
        OverflowError,
    ):
        return  # a combination that HDF5 does not write


def _plain_texts() -> list[str]:
    return [text for text in _texts() if "\0" not in text]


def _virtual(case: Case, shape: tuple[int, ...]) -> h5py.VirtualLayout:
    layout = h5py.VirtualLayout(shape=shape, dtype="f4")
    layout[...] = h5py.VirtualSource(str(case.materials / "logs.hdf5"), "actions", shape=shape)
    return layout


# Stores


def _damage_arrays(case: Case, arrays: dict[str, Any]) -> None:
    rng = case.rng
    name = rng.choice([*arrays, "lengths", "first_steps", "ids", "marks"])
    old = arrays.get(name, np.zeros(len(arrays.get("lengths", [1])), np.int64))
    steps = len(arrays.get("observations", [0]))
    makers: list[Callable[[], Any]] = [
        lambda: old[:-1],
        lambda: np.concatenate([old, old[:1]]),
        lambda: old[..., None],
        lambda: old.ravel(),
        lambda: old[:0],
        lambda: np.zeros_like(old),
        lambda: -old.astype(np.int64),
        lambda: np.full(old.shape, rng.choice([np.nan, np.inf, 1e38]), np.float32),
        lambda: old.astype(rng.choice(["f2", "f4", "f8", "i1", "i4", "i8", "u1", "u8", "?"])),
        lambda: np.full(old.shape, 2**63 - 1, np.int64),
        lambda: np.full(old.shape, 2**64 - 1, np.uint64),
        lambda: np.array([2**63 - 1, 2**63 - 1, steps + 2], np.int64),
        lambda: np.array([steps + 2, -2], np.int64),
        lambda: np.array([2**64 - 1, steps + 1], np.uint64),
        lambda: np.array([steps], np.int64),
        lambda: np.array(1.5),
        lambda: rng.choice(list(arrays.values())),
        lambda: _low_precision(rng.choice(["bfloat16", "float8_e4m3fn", "float8_e5m2"]), old),
    ]
    with np.errstate(all="ignore"):
        made = rng.choice(makers)()
    if rng.random() < 0.1:
        arrays.pop(name, None)
    else:
        arrays[name] = np.ascontiguousarray(made)


def _low_precision(name: str, old: Any) -> Any:
    import ml_dtypes

    return np.zeros(old.shape, getattr(ml_dtypes, name))


def _hashes(arrays: dict[str, Any]) -> dict[str, str]:
    from safemil.data.trajectories import CONTENT

    notes = {name: arrays[name].astype(np.float32) for name in ("rewards", "costs") if name in arrays}
    return {"content": digest({name: arrays[name] for name in CONTENT}), "annotations": digest(notes)}


def _forge(described: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Make the description fit the arrays, as someone would who forges a store."""
    try:
        described |= {"episodes": len(arrays["lengths"]), "steps": len(arrays["observations"])}
        described |= {"observation_size": arrays["observations"].shape[1]}
        described |= {"action_size": arrays["actions"].shape[1], "hashes": _hashes(arrays)}
        if "ids" in described:
            described["ids"] = [f"trip {i}" for i in range(len(arrays["lengths"]))]
    except (KeyError, IndexError, ValueError, TypeError):
        return  # they are too far from a store to be described


KINDS = [
    options,
    parquet,
    parquet,
    parquet_bytes,
    csv,
    csv,
    hdf5,
    hdf5,
    hdf5_bytes,
    store,
    store,
    store_bytes,
]
