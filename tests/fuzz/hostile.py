"""Hostile values, documents and bytes: each draw depends on a seed alone."""

import copy
import json
import math
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

NUMBERS: list[Any] = [
    0,
    1,
    -1,
    2,
    0.5,
    -0.0,
    1e-320,
    1e38,
    3.5e38,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    -math.inf,
]
NUMBERS += [True, False, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**25, 10**400]
TEXTS = [
    "",
    " ",
    "0",
    "nan",
    "none",
    "1e400",
    "１２",
    "é",
    "\U0001f4a5",
    "\u202eabc",
    "a\0b",
    "\x1b[31mred",
    "a\nb",
]
TEXTS += [
    "[/x]",
    "[bold]",
    "<script>alert(1)</script>",
    "../../x",
    "/x/y",
    "..",
    "%s{0}",
    "x" * 300,
    "y" * 70_000,
]
TEXTS += ["obs_" + "9" * 5000, "safemil", "bc", "toy:speed", "\ud800", "\ufeffbom", '"quoted"', "a,b;c\td"]
BLOCK = 200  # cases that share one drawing of values, since a drawing takes longer than its values

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_scalars |= st.sampled_from(NUMBERS) | st.sampled_from(TEXTS)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def drawn_values(number: int) -> list[Any]:
    """Draw values of any structure, as JSON and TOML can hold them."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=BLOCK,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_values)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def deep(levels: int, opening: str = "[", closing: str = "]") -> str:
    """Nested brackets, deeper than a recursive reader can follow."""
    return opening * levels + closing * levels


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Path of every value inside a document."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        yield (*path, key)
        if isinstance(value, dict | list) and value:
            yield from places(value, (*path, key))


def damaged_document(document: Any, rng: random.Random, values: list[Any]) -> Any:
    """Change one to three places: replace, delete, repeat, wrap, rename or exchange what is there."""
    changed = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        known = list(places(changed)) if isinstance(changed, dict | list) else []
        if not known:
            break
        path = rng.choice(known)
        parent = _at(changed, path[:-1])
        _change(changed, parent, path[-1], rng, values, known)
    return changed


def _change(
    root: Any, parent: Any, key: Any, rng: random.Random, values: list[Any], known: list[Any]
) -> None:
    value = parent[key]
    kind = rng.choice(
        ["replace"] * 6 + ["delete", "delete", "repeat", "wrap", "rename", "exchange", "shorten"]
    )
    if kind == "delete":
        del parent[key]
    elif kind == "repeat" and isinstance(value, list) and value:
        parent[key] = value * rng.choice([2, 3]) if rng.random() < 0.5 else [*value, value[0]]
    elif kind == "wrap":
        parent[key] = rng.choice([[value], {"x": value}, [value, value], json.dumps(value, default=str)])
    elif kind == "rename" and isinstance(parent, dict):
        parent[rng.choice([*TEXTS, str(key) + "x", str(key).upper()])] = parent.pop(key)
    elif kind == "exchange":
        parent[key] = copy.deepcopy(_at(root, rng.choice(known)))
    elif kind == "shorten" and isinstance(value, list | dict):
        parent[key] = type(value)()
    else:
        parent[key] = hostile_value(value, rng, values)


def hostile_value(value: Any, rng: random.Random, values: list[Any]) -> Any:
    """Another value: of the same type half of the time, since those come furthest."""
    if rng.random() < 0.5:
        if isinstance(value, str):
            return rng.choice(TEXTS)
        if isinstance(value, int | float):
            return rng.choice([*NUMBERS, -value, value + 1, value * 1000])
        if isinstance(value, list) and value:
            return [hostile_value(value[0], rng, values), *value[1:]]
    return copy.deepcopy(rng.choice(values))  # which a later change would alter for other cases


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def json_text(document: Any, rng: random.Random) -> bytes:
    """JSON of a document, sometimes with something in it that only the text can hold."""
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    content = text.encode("utf-8", "surrogatepass")
    kind = rng.random()
    if kind < 0.04:
        content = content.replace(b"1", b"9" * rng.choice([400, 5000]), 1)
    elif kind < 0.07:
        content = content.replace(b'"', b'"\xff\xfe', 1)
    elif kind < 0.10:
        at = content.find(b": ") + 2
        opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
        nested = (opening * 100_000 + "1" + closing * 100_000).encode()
        content = content[:at] + nested + b"," + content[at:]
    elif kind < 0.16:
        content = damaged_bytes(content, rng)
    return content


def toml_text(document: Any, rng: random.Random) -> bytes:
    """TOML of a document, every table inline; None is left out."""
    lines = [f"{_key(name)} = {_toml(value)}" for name, value in document.items() if value is not None]
    content = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    kind = rng.random()
    if kind < 0.03:
        content = content.replace(b"= ", b"= " + b"9" * 5000 + b" #", 1)
    elif kind < 0.06:
        content += f"deep = {deep(50_000)}\n".encode()
    elif kind < 0.08:
        content = content.replace(b'"', b'"\xff', 1)
    elif kind < 0.14:
        content = damaged_bytes(content, rng)
    return content


def _key(name: str) -> str:
    return _toml(str(name))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(str(value), repr(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value if each is not None) + "]"
    if isinstance(value, dict):
        held = (f"{_key(name)} = {_toml(each)}" for name, each in value.items() if each is not None)
        return "{" + ", ".join(held) + "}"
    plain = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in str(value))
    return '"' + "".join(plain) + '"'


def damaged_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, overwrite, cut, repeat, insert or exchange bytes, one to four times."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        if not changed:
            break
        at = rng.randrange(len(changed))
        length = min(rng.choice([1, 1, 2, 4, 8, 64]), len(changed) - at)
        kind = rng.randrange(7)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at : at + length] = rng.randbytes(length)
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        elif kind == 4:
            changed[at : at + length] = bytes([rng.choice([0, 0x7F, 0x80, 0xFF])]) * length
        elif kind == 5:
            del changed[at:]
        else:
            other = rng.randrange(len(changed))
            changed[at : at + length] = changed[other : other + length]
    return bytes(changed)
