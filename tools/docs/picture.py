"""Take pictures of the documentation from reports, with Debian's Chromium.

make demo
python tools/docs/picture.py demo/report.html docs/images/demo.png
python tools/docs/picture.py drives.html docs/images/report.png --first-screen
"""

import shutil
from pathlib import Path
from typing import Annotated

import tyro
from playwright.sync_api import sync_playwright

# The first map of what was learned and the paths of both policies, side by side on white.
ARRANGE = """
() => {
  const paths = [...document.querySelectorAll("#policy .maps figure svg, #policy svg.map")];
  const shown = [
    ["learned cost ĉ, by place", document.querySelector("#learned figure svg")],
    ["BC: told nothing", paths.at(-1)],
    ["SafeMIL: told of 50 incidents", paths.at(0)],
  ];
  const row = document.createElement("div");
  row.id = "picture";
  row.style.cssText = "display:flex;gap:24px;padding:16px;background:white;width:max-content";
  for (const [title, picture] of shown) {
    const part = document.createElement("div");
    part.style.cssText = "width:300px;text-align:center;font:600 16px system-ui,sans-serif;color:#1c2530";
    picture.style.cssText = "width:300px;height:300px";
    part.append(title, picture);
    row.append(part);
  }
  document.body.replaceChildren(row);
}
"""


def main(
    report: Annotated[Path, tyro.conf.Positional],
    out: Annotated[Path, tyro.conf.Positional],
    first_screen: bool = False,
) -> None:
    """Draw `out` from a report.

    Args:
        report: page that `safemil report` wrote; for the README's picture one that compares SafeMIL with BC
        out: PNG file
        first_screen: show the head of the page, instead of maps side by side
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(
            viewport={"width": 1130, "height": 760},
            device_scale_factor=1 if first_screen else 2,
            color_scheme="light",
        ).new_page()
        page.goto(report.resolve().as_uri())
        if first_screen:
            page.locator("header").screenshot(path=out)
        else:
            page.evaluate(ARRANGE)
            page.locator("#picture").screenshot(path=out)
        browser.close()
    print(out)


if __name__ == "__main__":
    tyro.cli(main)
