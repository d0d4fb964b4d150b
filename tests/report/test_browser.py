"""The page in a real browser, opened from a file."""

import json
import os
import re
import shutil
from base64 import b64decode

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright
from small_runs import HOSTILE

import safemil
from safemil.labels import Labels

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on PATH")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser):
    """Opens a page and, at the end, fails if it complained or asked the network for anything."""
    complaints, contexts = [], []

    def go(path, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        tab.on("request", lambda request: _note(request.url, complaints))
        tab.goto(path.as_uri())
        return tab

    yield go
    for context in contexts:
        context.close()
    assert complaints == []


def _note(url, complaints):
    if not url.startswith(("file:", "data:")):
        complaints.append(url)


def column(tab, number):
    return tab.locator(f"#episodes tbody tr td:nth-child({number})").all_inner_texts()


def test_the_page_opens_without_complaint_and_shows_hostile_names_as_text(visit, page):
    tab = visit(page)
    expect(tab.get_by_role("heading", level=1)).to_have_text("12 episodes and 4 incidents")
    expect(tab.locator("#episodes .pick", has_text=HOSTILE)).to_have_count(1)
    tab.locator("#episodes .pick", has_text=HOSTILE).click()
    expect(tab.locator("#detail-title")).to_have_text(HOSTILE)


def test_a_click_on_a_header_sorts_and_another_turns_the_order_round(visit, page):
    tab = visit(page)
    ranked = column(tab, 1)
    assert ranked == [str(i + 1) for i in range(12)]
    tab.get_by_role("button", name="mean risk").click()
    assert column(tab, 1) == ranked
    tab.get_by_role("button", name="mean risk").click()
    assert column(tab, 1) == ranked[::-1]
    expect(tab.locator("#episodes th", has_text="mean risk")).to_have_attribute("aria-sort", "ascending")


def test_the_keyboard_sorts_too_and_numbers_in_names_count_as_numbers(visit, page):
    tab = visit(page)
    tab.get_by_role("button", name="episode", exact=True).focus()
    tab.keyboard.press("Enter")
    names = [name for name in column(tab, 2) if name != HOSTILE]
    assert names == [f"trip {i}" for i in range(11)]


def test_pointing_at_a_timeline_tells_step_and_cost(visit, page):
    tab = visit(page)
    expect(tab.locator("#tip")).to_be_hidden()
    tab.locator(".spark").nth(2).hover()
    expect(tab.locator("#tip")).to_have_text(re.compile(r"^step 1[45] · risk [01]\.\d\d$"))
    tab.locator("h1").hover()
    expect(tab.locator("#tip")).to_be_hidden()


def test_a_focused_timeline_is_read_with_the_arrow_keys(visit, page):
    tab = visit(page)
    tab.locator("#step").fill("0")
    tab.locator(".spark").first.focus()
    expect(tab.locator("#tip")).to_have_text(re.compile(r"^step 0 · risk"))
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#tip")).to_have_text(re.compile(r"^step 1 · risk"))
    tab.keyboard.press("ArrowDown")
    expect(tab.locator("#episodes tbody tr").nth(1)).to_have_attribute("aria-selected", "true")


def test_the_slider_steps_through_an_episode(visit, page):
    tab = visit(page)
    slider = tab.locator("#step")
    expect(slider).to_have_attribute("max", "29")
    slider.fill("7")
    expect(tab.locator("#readout")).to_have_text(
        re.compile(r"^step 7: risk [01]\.\d\d, mean of 5 steps [01]\.\d\d, true cost ")
    )
    before = tab.locator("#detail-line .cursor").get_attribute("d")
    slider.press("ArrowRight")
    expect(tab.locator("#readout")).to_have_text(re.compile(r"^step 8: "))
    assert tab.locator("#detail-line .cursor").get_attribute("d") != before


def ground(tab):
    return tab.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_is_what_the_system_says_until_the_button_says_otherwise(visit, page):
    light, dark = (ground(visit(page, color_scheme=scheme)) for scheme in ("light", "dark"))
    assert light != dark
    tab = visit(page, color_scheme="dark")
    tab.locator("#theme").click()
    assert ground(tab) == light
    tab.reload()
    assert ground(tab) == light


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_makes_the_page_scroll_sideways(visit, page, width):
    tab = visit(page, viewport={"width": width, "height": 844})
    assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_the_page_prints_in_light_and_without_controls(visit, page):
    tab = visit(page, color_scheme="light", viewport={"width": 800, "height": 1100})
    tab.locator("#theme").click()
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert tab.evaluate("document.documentElement.scrollWidth") == 800
    expect(tab.locator("#detail")).to_be_hidden()
    expect(tab.locator("#theme")).to_be_hidden()
    expect(tab.locator("#episodes")).to_be_visible()


def test_a_chosen_episode_is_drawn_on_its_map(visit, goal_page):
    tab = visit(goal_page)
    expect(tab.locator("#detail-map .hazard")).to_have_count(8)
    place = tab.locator("#detail-map .here")
    tab.locator("#step").fill("0")
    before = place.get_attribute("cx"), place.get_attribute("cy")
    tab.locator("#step").fill("500")
    assert (place.get_attribute("cx"), place.get_attribute("cy")) != before


@pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "off", reason="needs a drawing library")
def test_clips_wait_for_the_button_where_motion_is_not_wanted(visit, goal_page):
    tab = visit(goal_page, reduced_motion="reduce")
    frame = tab.locator(".frame").first
    frame.scroll_into_view_if_needed()
    expect(tab.locator("#play")).to_have_text("Play")
    expect(tab.locator(".clip-readout").first).not_to_have_text(re.compile(r"^step 0,"))
    tab.locator("#frame").fill("3")
    expect(tab.locator(".clip-readout").first).to_have_text(re.compile(r"^step 36, risk"))
    tab.locator("#play").click()
    expect(tab.locator("#play")).to_have_text("Pause")
    expect(tab.locator(".clip-readout").first).not_to_have_text(re.compile(r"^step 36, "))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("which", ["page", "goal_page"])
def test_axe_finds_nothing_against_contrast_labels_or_structure(visit, request, which, width, scheme):
    """Every rule of axe-core, among them a contrast of 4.5:1."""
    tab = visit(
        request.getfixturevalue(which),
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        reduced_motion="reduce",
        bypass_csp=True,  # axe is a script of its own
    )
    tab.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    found = Axe().run(tab).response
    assert "color-contrast" in {each["id"] for each in found["passes"]}
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found["violations"]] == []


def chosen(tab):
    return tab.locator("#detail-title").inner_text()


def test_labels_are_given_by_keys_kept_and_downloaded_for_training(visit, page, folder, tmp_path):
    tab = visit(page)
    names = column(tab, 2)
    tab.locator("#episodes .pick").nth(2).click()
    tab.keyboard.press("f")
    tab.keyboard.press("ArrowDown")
    tab.locator("#step").fill("7")
    tab.keyboard.press("m")
    expect(tab.locator("#label-status")).to_have_text(f"{names[3]} is an incident, at step 7.")
    tab.locator("#episodes .pick").nth(4).click()
    tab.get_by_role("button", name="Unsure").click()
    expect(tab.get_by_role("button", name="Unsure")).to_have_attribute("aria-pressed", "true")
    tab.locator("#episodes .pick").nth(5).click()
    tab.keyboard.press("i")
    tab.keyboard.press("x")
    assert column(tab, 7)[2:6] == ["fine", "incident", "unsure", ""]
    tab.reload()
    assert column(tab, 7)[2:6] == ["fine", "incident", "unsure", ""]
    expect(tab.locator("#label-count")).to_have_text("1 incident, 1 fine, 1 unsure.")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Download labels").click()
    download.value.save_as(tmp_path / "labels.json")
    found = Labels.load(tmp_path / "labels.json").split(safemil.load(folder / "logs"))
    assert found.fine.ids.tolist() == [names[2]]
    assert found.incidents.ids.tolist() == [names[3]]
    assert np.flatnonzero(found.incidents.marks).tolist() == [7]
    assert len(found.unlabeled) == 10
    tab.get_by_role("button", name="Forget all").click()
    expect(tab.get_by_role("button", name="Download labels")).to_be_disabled()


def test_single_keys_do_nothing_elsewhere_or_when_switched_off(visit, page):
    tab = visit(page)
    tab.locator("#theme").focus()
    tab.keyboard.press("i")
    tab.locator("#keys").uncheck()
    tab.locator("#episodes .pick").first.focus()
    tab.keyboard.press("i")
    expect(tab.locator("#label-count")).to_have_text("None yet.")


def test_the_proposed_episodes_are_gone_through_one_by_one(visit, page):
    tab = visit(page)
    proposed = tab.locator("#proposed button").all_inner_texts()
    assert len(proposed) == 10
    tab.locator("#episodes .pick").first.focus()
    for name in proposed[:2]:
        tab.keyboard.press("n")
        assert chosen(tab) == name
        tab.keyboard.press("u")
    expect(tab.locator("#proposed .done")).to_have_count(2)


def test_reasons_and_values_of_a_step_are_named(visit, page):
    tab = visit(page)
    rows = tab.locator("#values tr")
    expect(rows).to_have_count(5)
    tab.locator("#step").fill("20")
    before = rows.first.inner_text()
    tab.locator("#step").fill("3")
    assert rows.first.inner_text() != before
    expect(tab.locator("#reasons li").first).to_have_text(
        re.compile(r"^(observation|action) \d[+−][01]\.\d\d$")
    )
    tab.locator(".example").first.click()
    assert tab.locator(".example").first.inner_text().startswith(f"Example: {chosen(tab)}, step ")


def test_a_term_is_explained_on_hover_and_focus(visit, page):
    tab = visit(page)
    term = tab.locator("a.term").first
    term.hover()
    expect(tab.locator("#tip")).to_have_text(re.compile("^The learned cost of a step"))
    tab.mouse.move(0, 0)
    expect(tab.locator("#tip")).to_be_hidden()
    term.focus()
    expect(tab.locator("#tip")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator("#tip")).to_be_hidden()


def test_an_episode_opens_at_its_most_telling_moment(visit, page):
    tab = visit(page)
    data = json.loads(tab.locator("#data").text_content())
    risk = np.frombuffer(b64decode(data["episodes"][0]["risk"]), np.uint8) / 255
    step = int(tab.locator("#step").input_value())
    smooth = np.array([risk[max(0, i - 2) : i + 3].mean() for i in range(len(risk))])
    assert smooth[step] >= smooth.max() - 0.011
