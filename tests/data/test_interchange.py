import json

import pytest

from safemil.data.interchange import Columns, Fill, Options
from safemil.errors import InputError

FULL = Options(
    Columns("drive", "stamp", ("speed", "gap, front"), "steer,pedal"),
    action_bounds=([-6, -0.3], [6, 0.3]),
    incident="status=off_track",
    incident_episodes=("7", "8"),
    fills=(Fill("gap_*", 90.0), Fill("speed", "previous"), Fill("gap_*", "flag")),
    max_gap="1s",
    action_kind="discrete",
    action_categories=("left", "right"),
)


@pytest.mark.parametrize("options", [Options(), FULL])
def test_options_survive_json(options):
    again = Options.from_dict(json.loads(json.dumps(options.to_dict())))
    assert again.to_dict() == options.to_dict()
    assert again.fills == options.fills
    assert again.columns == options.columns


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": {"episode": 3}},
        {"columns": {"observation": [1, 2]}},
        {"columns": {"speed": "x"}},
        {"columns": "episode"},
        {"unknown": 1},
        {"fills": [{"pattern": "a", "value": "next"}]},
        {"fills": [{"pattern": "a", "value": True}]},
        {"fills": "gap=1"},
        {"incident_episodes": "7"},
        {"max_gap": [1]},
        {"action_kind": "both"},
        {"action_categories": [1]},
        {"action_bounds": ["low", "high"]},
        {"action_bounds": [1, 2, 3]},
        {"lenient": "yes"},
    ],
)
def test_damaged_options_are_refused(changes):
    with pytest.raises(InputError, match="options of a reader are damaged"):
        Options.from_dict(FULL.to_dict() | changes)


def test_a_fill_is_read_from_text():
    assert Fill.parse("gap_*=90") == Fill("gap_*", 90.0)
    assert Fill.parse(" a=b = previous") == Fill("a=b", "previous")
    assert Fill.parse("x=flag").value == "flag"


@pytest.mark.parametrize("text", ["gap_*", "=3", "gap_*=next", "gap_*=nan", "gap_*=", "gap_*=inf"])
def test_a_fill_of_another_kind_is_refused(text):
    with pytest.raises(InputError, match=r"number, previous or flag|PATTERN=VALUE"):
        Fill.parse(text)
