import base64
import hashlib
import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from small_runs import HOSTILE, SMALL, episodes

import safemil
from safemil import catalog
from safemil.cli import main
from safemil.errors import InputError, InputWarning
from safemil.evidence import Evidence
from safemil.report import policies
from safemil.report.clips import COLUMNS, SIZE, film
from safemil.report.page import to_json


def report(*arguments):
    return main(["report", *map(str, arguments)])


def embedded(page):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(text[1])


def test_the_page_is_small_and_names_nothing_that_must_be_fetched(page):
    text = page.read_text()
    assert page.stat().st_size < 3_000_000
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
    assert not re.findall(r"https?://(?!www\.w3\.org)", text)
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_a_run_without_evidence_says_so_before_anything_else(folder, page, tmp_path):
    shutil.copytree(folder, tmp_path / "same")
    run, out = tmp_path / "same" / "run", tmp_path / "report.html"
    replace(Evidence.load(run), grade="none").save(run)
    assert main(["report", str(run), "--out", str(out)]) == 0
    text = out.read_text().split("</style>")[1]
    warning = "<strong>Evidence: none.</strong>"
    assert text.index(warning) < text.index("<h1>")
    assert "Nothing was found that chance would not find" in text
    assert warning not in page.read_text()


def test_the_page_allows_its_own_script_and_no_other(page):
    text = page.read_text()
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_what_comes_from_data_is_text(page):
    text = page.read_text()
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert HOSTILE in [each["name"] for each in embedded(page)["episodes"]]


def test_json_in_a_script_can_not_end_it():
    hostile = ["</script><!--", "\u2028", "&"]
    written = str(to_json(hostile))
    assert not set(written) & set("<>&\u2028")
    assert json.loads(written) == hostile


def test_episodes_are_ranked_with_the_numbers_that_the_run_gives(folder, page):
    run, logs = safemil.Run.load(folder / "run"), safemil.load(folder / "logs")
    means = {str(name): risk.mean() for name, risk in zip(logs.ids, run.cost(logs), strict=True)}
    listed = [each["name"] for each in embedded(page)["episodes"]]
    assert listed == sorted(means, key=lambda name: -means[name])
    first = np.frombuffer(base64.b64decode(embedded(page)["episodes"][0]["risk"]), np.uint8)
    np.testing.assert_allclose(first / 255, run.cost(logs)[list(means).index(listed[0])], atol=1 / 255)


def test_the_same_input_gives_the_same_bytes(folder, page, tmp_path):
    assert report(folder / "run", "--out", tmp_path / "again.html") == 0
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_the_last_line_printed_is_the_path_written(folder, tmp_path, capsys):
    assert report(folder / "run", "--out", tmp_path / "page.html") == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "page.html")


def test_a_page_is_overwritten_only_when_told(folder, page, capsys):
    before = page.read_bytes()
    assert report(folder / "run", "--out", page) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert page.read_bytes() == before
    assert report(folder / "run", "--out", page, "--overwrite") == 0


def test_hindsight_is_shown_where_costs_are_known_and_nowhere_else(folder, page, tmp_path):
    assert "In hindsight" in page.read_text()
    safemil.save(tmp_path / "bare", safemil.load(folder / "logs"))
    out = tmp_path / "bare.html"
    assert report(folder / "run", "--unlabeled", tmp_path / "bare", "--out", out) == 0
    assert "In hindsight" not in out.read_text()
    assert (
        "true cost" not in out.read_text().replace("true costs", "").split("<script>")[0].split("</style>")[1]
    )
    assert "costly" not in embedded(out)["episodes"][0]


def test_other_episodes_than_those_learned_from_are_called_so(folder, page, tmp_path):
    assert "not the ones this run was trained on" not in page.read_text()
    safemil.save(tmp_path / "new", episodes(["new 0", "new 1"], 9, False)[0])
    assert report(folder / "run", "--unlabeled", tmp_path / "new", "--out", tmp_path / "new.html") == 0
    assert "not the ones this run was trained on" in (tmp_path / "new.html").read_text()


def test_a_run_that_was_saved_from_python_says_nothing_of_what_it_learned_from(folder, tmp_path):
    safemil.Run.load(folder / "run").save(tmp_path / "saved")
    given = ["--unlabeled", folder / "logs", "--nonpreferred", folder / "incidents"]
    assert report(tmp_path / "saved", *given, "--out", tmp_path / "page.html") == 0
    assert "trained on" not in (tmp_path / "page.html").read_text()


def test_a_cost_that_is_no_number_is_called_a_failed_training(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(safemil.api, "_cost", lambda *inputs: np.full((2, len(inputs[-1])), np.nan))
    assert report(folder / "run", "--out", tmp_path / "page.html") == 2
    assert "its training has diverged" in capsys.readouterr().err


def test_a_method_without_a_cost_has_a_page_without_risk(folder, tmp_path):
    assert report(folder / "bc", "--out", tmp_path / "bc.html") == 0
    text = (tmp_path / "bc.html").read_text()
    assert "learns a policy and no cost" in text
    assert 'id="episodes"' not in text
    assert 'class="band' in text  # of its two seeds


def test_piles_that_have_moved_are_asked_for(folder, tmp_path, capsys):
    shutil.copytree(folder / "run", tmp_path / "run")  # without the piles beside it
    assert report(tmp_path / "run", "--out", tmp_path / "page.html") == 2
    assert "are no longer at" in capsys.readouterr().err
    given = ["--unlabeled", folder / "logs", "--nonpreferred", folder / "incidents"]
    assert report(tmp_path / "run", *given, "--out", tmp_path / "page.html") == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "page.pdf"], "expected an HTML file"),
        (["--out", "page.html", "--nonpreferred", "x"], "give --unlabeled as well as"),
        (["--out", "page.html", "--task", "SafetyPointGaol1-v0"], 'did you mean "SafetyPointGoal1-v0"'),
        (["--out", "page.html", "--task", "SafetyPointGoal1-v0"], "has 60 observation"),
        (["--out", "page.html", "--compare", "nowhere"], "is not a run"),
    ],
)
def test_what_can_not_work_is_said_in_a_sentence(folder, tmp_path, monkeypatch, capsys, more, message):
    monkeypatch.chdir(tmp_path)
    assert report(folder / "run", *more) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_neither_run_nor_results_is_refused(tmp_path, capsys):
    assert report(tmp_path, "--out", tmp_path / "page.html") == 2
    assert "is not a run" in capsys.readouterr().err


def test_a_navigation_run_has_maps_clips_and_an_evaluation(goal_page):
    text, data = goal_page.read_text(), embedded(goal_page)
    assert text.count('<circle class="hazard"') >= 8 * 4
    assert all(len(each["discs"]) == 8 for each in data["episodes"])
    assert re.search("(goal|hazard|vase) lidar", text)
    assert "What the policy does" in text
    assert "In hindsight" in text  # from the store beside the unlabeled pile


def test_without_recorded_seeds_behaviour_policies_show_the_way(goal, tmp_path, monkeypatch):
    monkeypatch.setattr(policies, "BEHAVIOURS", 2)
    monkeypatch.setattr(policies, "filmed", lambda *_, **__: [])
    safemil.save(tmp_path / "bare", safemil.load(goal / "unlabeled"))
    out = tmp_path / "goal.html"
    assert report(goal / "run", "--unlabeled", tmp_path / "bare", "--out", out) == 0
    assert "Behaviour policies in the task" in out.read_text()
    assert "path" not in embedded(out)["episodes"][0]


def test_what_can_not_be_drawn_is_left_out_with_a_warning(monkeypatch):
    def fail(*_, **__):
        raise InputError("can't draw")

    monkeypatch.setattr(policies, "_filmed", fail)
    with pytest.warns(InputWarning, match="no clips: can't draw"):
        assert policies.filmed(None, [None], progress=False) == []


def test_a_clip_is_a_sheet_of_frames():
    clip = film(catalog.task("SafetyPointCircle2-v0"), 0, np.ones((30, 2), np.float32))
    assert clip.steps[:2] == [0, 12]
    content = base64.b64decode(clip.source.removeprefix("data:image/webp;base64,"))
    assert Image.open(io.BytesIO(content)).size == (COLUMNS * SIZE, SIZE)


def test_a_run_that_is_resumed_still_knows_its_piles(folder, tmp_path):
    piles = ["--nonpreferred", str(folder / "incidents"), "--unlabeled", str(folder / "logs")]
    command = ["train", "safemil", *piles, *SMALL, "--out", str(tmp_path / "run")]
    assert main(command) == 0
    assert main([*command, "--resume"]) == 0
    assert report(tmp_path / "run", "--out", tmp_path / "page.html") == 0
