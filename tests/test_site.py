"""The site in a browser, from a folder on disk: no server, no network."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks._browser import find_chromium

ROOT = Path(__file__).parent.parent


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two pages, with the theme, search and scripts of the site itself."""
    build = pytest.importorskip("mkdocs.commands.build", reason="needs prcut[docs]")
    config = pytest.importorskip("mkdocs.config", reason="needs prcut[docs]")
    pytest.importorskip("material", reason="needs prcut[docs]")
    settings: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    del settings["hooks"]
    settings["theme"]["custom_dir"] = str(ROOT / settings["theme"]["custom_dir"])
    docs = tmp_path / "docs"
    (docs / "making").mkdir(parents=True)
    for name in ("iframe-worker.js", "site.css"):
        (docs / "making" / name).write_bytes((ROOT / "docs/making" / name).read_bytes())
    (docs / "index.md").write_text("# First\n\nAbout apples.\n")
    (docs / "other.md").write_text("# Second\n\nAbout **quinces** and pears.\n")
    settings |= {
        "docs_dir": str(docs),
        "site_dir": str(tmp_path / "site"),
        "nav": ["index.md", "other.md"],
        "plugins": [name for name in settings["plugins"] if isinstance(name, str)],
    }
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    build.build(config.load_config(str(tmp_path / "mkdocs.yml")))
    return tmp_path / "site"


@pytest.mark.costly("builds two pages and searches them in a browser")
@pytest.mark.filterwarnings("ignore")  # of MkDocs and Playwright, not of ours
def test_search_works_from_a_folder_on_disk(site: Path) -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium: the search is not tried")
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")
        page.keyboard.type("quinc")
        found = page.locator(".md-search-result__link").first
        found.wait_for(timeout=60_000)
        assert "Second" in found.inner_text()
        found.click()
        page.wait_for_url("**/other.html**")
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "about:", "blob:", "data:"))] == []
