"""The page in a real browser, opened from a file."""

import os
import re
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright
from small_runs import HOSTILE

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
    expect(tab.get_by_role("heading", level=1)).to_have_text("run")
    expect(tab.locator("#episodes .pick", has_text=HOSTILE)).to_have_count(1)
    tab.locator("#episodes .pick", has_text=HOSTILE).click()
    expect(tab.locator("#detail-title")).to_have_text(f"Episode {HOSTILE}")


def test_a_click_on_a_header_sorts_and_another_turns_the_order_round(visit, page):
    tab = visit(page)
    ranked = column(tab, 1)
    assert ranked == [str(i + 1) for i in range(12)]
    tab.get_by_role("button", name="mean ĉ").click()
    assert column(tab, 1) == ranked
    tab.get_by_role("button", name="mean ĉ").click()
    assert column(tab, 1) == ranked[::-1]
    expect(tab.locator("#episodes th", has_text="mean ĉ")).to_have_attribute("aria-sort", "ascending")


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
    expect(tab.locator("#tip")).to_have_text(re.compile(r"^step 1[45] · ĉ [01]\.\d\d$"))
    tab.locator("h1").hover()
    expect(tab.locator("#tip")).to_be_hidden()


def test_a_focused_timeline_is_read_with_the_arrow_keys(visit, page):
    tab = visit(page)
    tab.locator("#step").fill("0")
    tab.locator(".spark").first.focus()
    expect(tab.locator("#tip")).to_have_text(re.compile(r"^step 0 · ĉ"))
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#tip")).to_have_text(re.compile(r"^step 1 · ĉ"))
    tab.keyboard.press("ArrowDown")
    expect(tab.locator("#episodes tbody tr").nth(1)).to_have_attribute("aria-selected", "true")


def test_the_slider_steps_through_an_episode(visit, page):
    tab = visit(page)
    slider = tab.locator("#step")
    expect(slider).to_have_attribute("max", "29")
    slider.fill("7")
    expect(tab.locator("#readout")).to_have_text(re.compile(r"^step 7: ĉ [01]\.\d\d, true cost "))
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
    expect(tab.locator(".clip-readout").first).to_have_text(re.compile(r"^step 0, ĉ"))
    tab.locator("#frame").fill("3")
    expect(tab.locator(".clip-readout").first).to_have_text(re.compile(r"^step 36, ĉ"))
    tab.locator("#play").click()
    expect(tab.locator("#play")).to_have_text("Pause")
    expect(tab.locator(".clip-readout").first).not_to_have_text(re.compile(r"^step 36, "))
