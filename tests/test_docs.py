"""The documentation: code and commands run, messages are the code's, links lead somewhere, pages can be read.

Python and doctest blocks of a page run in one namespace, commands in one folder per page, with fewer steps and seeds.
Comments in a page say what differs:

    <!-- slow -->               the page's Python trains for a while: in the slow tests
    <!-- not run: REASON -->    before a block
    <!-- given: COMMAND -->     before a block of commands: run this first
    <!-- file: NAME -->         before a block: it is the content of a file that the page's commands read
"""

import doctest
import functools
import http.server
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

import procurl
from procurl import cli

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
# Pages whose Python is run by tests that also look at what comes out.
ELSEWHERE = {
    "checkpoints.md": "test_checkpoint.py",
    "integrations/brax.md": "test_suites.py",
    "integrations/gymnasium.md": "test_gymnasium.py",
    "integrations/gymnax.md": "test_suites.py",
    "integrations/sb3.md": "test_sb3.py",
    "integrations/trl.md": "test_trl.py",
    "settings/bipedal.md": "test_bipedal.py",
    "theory.md": "test_theory.py",
}
# Pages whose commands make sense only with a kill in between, or with a program beside them.
RECIPES = {page: "test_recipes.py" for page in PAGES if page.startswith("recipes/")}
COMMANDS_ELSEWHERE = {"checkpoints.md": "test_checkpoint.py", **RECIPES}
EXAMPLES = (ROOT / "tests/test_examples.py").read_text()


class Block(NamedTuple):
    language: str
    code: str
    notes: list[str]  # the comments right before it
    line: int


def blocks(page: str) -> list[Block]:
    text = (DOCS / page).read_text()
    pattern = r"((?:^<!--[^\n]*-->\n+)*)^```(\w*)[^\n]*\n(.*?)^```$"
    found = []
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        notes = re.findall(r"<!-- (.*?) -->", match[1])
        found.append(Block(match[2], match[3], notes, text[: match.start(2)].count("\n") + 1))
    return found


def is_run(block: Block) -> bool:
    return not any(note.startswith("not run:") for note in block.notes) and "--8<--" not in block.code


def of(page: str, *languages: str) -> list[Block]:
    return [block for block in blocks(page) if block.language in languages and is_run(block)]


def shorter(code: str) -> str:
    """The same with fewer steps and seeds."""
    code = re.sub(r"(\bsteps=)(\d[\d_]{4,})", r"\g<1>6_000", code)
    code = re.sub(r"(\blearn\()(\d[\d_]{4,})", r"\g<1>4_096", code)
    code = re.sub(r"(--steps[ =])\S{2,}", r"\g<1>6k", code)
    return re.sub(r"(--seeds[ =])\d+", r"\g<1>2", code)


# ---------------------------------------------------------------- Python


def python_pages():
    for page in PAGES:
        if page not in ELSEWHERE and of(page, "python", "pycon"):
            slow = "<!-- slow -->" in (DOCS / page).read_text()
            yield pytest.param(page, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("page", list(python_pages()))
def test_the_python_of_a_page_runs_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    names: dict = {"__name__": "__main__"}
    for block in of(page, "python", "pycon"):
        run_given(block, tmp_path)
        if block.language == "python":
            code = re.sub(
                r"^procurl\.use_cores\(.*$", "", shorter(block.code), flags=re.MULTILINE
            )  # JAX is here already
            exec(compile("\n" * block.line + code, page, "exec"), names)
        else:
            check_session(block, page, names)


def check_session(block: Block, page: str, names: dict) -> None:
    """Python's prompt, with what it answers; `...` stands for anything."""
    test = doctest.DocTestParser().get_doctest(block.code, names, page, page, block.line)
    test.globs = names  # not a copy: what is defined here is there in the next block
    said = io.StringIO()
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(
        test, out=said.write, clear_globs=False
    )
    assert result.failed == 0, said.getvalue()


def test_pages_run_elsewhere_are_run_there():
    for page, test in ELSEWHERE.items():
        assert f"docs/{page}" in (ROOT / "tests" / test).read_text(), page
    for page, test in COMMANDS_ELSEWHERE.items():
        assert not of(page, *SHELL) or Path(page).stem in (ROOT / "tests" / test).read_text(), page


# ---------------------------------------------------------------- commands

SHELL = ("sh", "console", "")


def command_lines(block: Block) -> list[tuple[str, str | None]]:
    """Commands, each with the output that the page shows for it (console blocks)."""
    if block.language != "console":
        lines = re.sub(r"\\\n\s*", " ", block.code).splitlines()
        return [(line, None) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    parts = re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if of(page, *SHELL) and page not in COMMANDS_ELSEWHERE])
def test_the_commands_of_a_page_run_as_printed(page, tmp_path):
    env = environment()
    for block in blocks(page):
        for note in block.notes:
            if note.startswith("file: "):
                (tmp_path / note.removeprefix("file: ")).write_text(shorter(block.code))
    for block in of(page, *SHELL):
        run_given(block, tmp_path)
        for line, shown in command_lines(block):
            run_command(line, tmp_path, env, shown)


def environment() -> dict:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}


def run_given(block: Block, folder: Path) -> None:
    for note in block.notes:
        if note.startswith("given: "):
            run_command(note.removeprefix("given: "), folder, environment(), None)


def run_command(line: str, folder: Path, env: dict, shown: str | None) -> None:
    words = shlex.split(shorter(line), comments=True)
    if words[0] == "export":
        env.update(word.split("=", 1) for word in words[1:])
        return
    if "=" in words[0]:
        env = {**env, **dict([words.pop(0).split("=", 1)])}
    if is_known_without_running(words):
        return
    if words[1] in ("train", "bench") and "--steps" not in words and words[2] != "status":
        words += ["--steps", "6k"]
    if words[1] == "bench" and words[2] != "status":
        words += ["--seeds", "1", "--workers", "2"]
    assert words[0] == "procurl", f"`{line}`: a command that the tests do not know; mark it `not run: REASON`"
    message = r"procurl( \w+)?: "
    refused = "refused" in line or (shown is not None and re.match(message, shown) is not None)
    done = subprocess.run(
        [sys.executable, "-m", "procurl.cli", *words[1:]],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert (done.returncode != 0) == refused, f"{line}\n{done.stdout}{done.stderr}"
    if shown is not None:
        said = done.stdout
        if refused:  # after progress or usage
            said = done.stderr[re.search(message, done.stderr).start() :]
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(shown, said, options), f"{line}\nsays:\n{said}\nshown:\n{shown}"


def is_known_without_running(words: list[str]) -> bool:
    """Commands that set up a machine, or that other tests run: what they name must exist."""
    if words[:2] == ["pip", "install"]:
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        extras = [extra for word in words for extra in re.findall(r"\[(.*?)\]", word)]
        assert all(extra in known for names in extras for extra in names.split(",")), words
        return True
    if "benchmarks/results" in words:
        assert "benchmarks/results" in (ROOT / "tests/test_report.py").read_text()
        return True
    if words[0] == "make":
        assert all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in words[1:]), words
        return True
    if words[0] == "python" and words[1].startswith("tools/"):
        assert (ROOT / words[1]).is_file() and words[1] in (ROOT / "Makefile").read_text()
        return True
    if words[0] == "python" and words[1].startswith("examples/"):
        assert (ROOT / words[1]).is_file() and Path(words[1]).stem in EXAMPLES + (
            ROOT / "tests/test_readme.py"
        ).read_text()
        return True
    return False


def test_commands_within_sentences_exist():
    commands = next(a for a in cli.build_parser()._actions if hasattr(a, "choices") and a.choices).choices
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        for words in (code.split() for code in re.findall(r"`procurl ([a-z][^`]*)`", prose)):
            assert words[0] in commands, f"{page}: procurl {' '.join(words)}"
            known = commands[words[0]]._option_string_actions
            for option in (word.partition("=")[0] for word in words[1:] if word.startswith("-")):
                assert option in known, f"{page}: procurl {' '.join(words)}"
        for target in re.findall(r"`make ([a-z-]+)`", prose):
            assert f"\n{target}:" in (ROOT / "Makefile").read_text(), f"{page}: make {target}"
        for path in re.findall(
            r"`(?:python )?((?:benchmarks|tools|examples|tests|src)/[\w/.-]+)(?![\w/.*-])[^`]*`", prose
        ):
            assert (ROOT / path).exists(), f"{page}: {path}"


def test_what_is_not_run_says_why():
    notes = [note for page in PAGES for block in blocks(page) for note in block.notes]
    assert all(re.fullmatch(r"(not run: .{8,}|given: procurl .*|file: [\w.-]+)", note) for note in notes), notes
    languages = {(page, block.language) for page in PAGES for block in blocks(page)}
    known = {"python", "pycon", "sh", "console", "", "toml", "text", "yaml"}
    assert all(language in known for _, language in languages), languages


@pytest.mark.parametrize("page", ["choosing.md", "fidelity.md", "settings/point-mass.md", "settings/maze.md"])
def test_results_of_a_page_are_recorded_ones(page):
    numbers = re.findall(r"-?\d+\.\d{3} \+- \d+\.\d{3}", (DOCS / page).read_text())
    recorded = (ROOT / "benchmarks/RESULTS.md").read_text()
    assert numbers and [x for x in numbers if x not in recorded] == []


def test_speeds_are_those_of_the_page_about_performance():
    """Of Point Mass, its first column; the README and the answers to questions repeat them."""
    measured = (DOCS / "performance.md").read_text()
    rates, times = measured.split("| steps per second |")[1].split(
        "| one seed on one core is so many times as fast as |"
    )

    def of(table, row):
        return re.search(rf"^\| {re.escape(row)} \| ([\d,]+) \|", table, re.MULTILINE)[1]

    naive, side_by_side = "SB3, 1 environment, naive teacher", "SB3, 16 environments"
    readme = (ROOT / "README.md").read_text()
    for row, there in (
        (f"procurl, one core | {of(rates, 'procurl, one seed, one core')} |", readme),
        (f"procurl, two cores, 8 seeds | {of(rates, 'procurl, 8 seeds, two cores')} |", readme),
        (f"the same core | {of(rates, side_by_side)} | {of(times, side_by_side)} times slower |", readme),
        (f"the released code | {of(rates, naive)} | {of(times, naive)} times slower |", readme),
        (f"[{of(times, side_by_side)} times as fast as Stable-Baselines3](perf", (DOCS / "faq.md").read_text()),
    ):
        assert row in there, row


def test_columns_and_sections_of_a_report_have_these_names():
    text = (DOCS / "reading-a-report.md").read_text()
    page = "".join(
        (ROOT / "src/procurl/bench/report/assets" / name).read_text() for name in ("page.js", "template.html")
    )
    table = text.partition("| column | question")[2].partition("\n\n")[0]
    columns = re.findall(r"^\| ([A-Z][^|]*?) \|", table, re.MULTILINE)
    assert len(columns) == 10
    for column in columns:
        assert f'head: "{column}' in page or f"head: `{column} " in page, column
    for title in ("Learning curves", "How sure are we?", "What was taught", "What was learnt"):
        assert f". {title}\n" in text and f">{title}</h2>" in page, title


# ---------------------------------------------------------------- the public names


def test_every_public_name_is_documented_with_an_example():
    """An example is a block between a name's own text and the next name's that uses it; the tests above run it."""
    sections = {}
    for path in sorted((DOCS / "api").glob("*.md")):
        parts = re.split(r"^::: procurl\.(\w+)$", path.read_text(), flags=re.MULTILINE)
        sections.update(zip(parts[1::2], parts[2::2], strict=True))
    sections["__version__"] = (DOCS / "api/README.md").read_text()
    assert set(procurl.__all__) <= set(sections), set(procurl.__all__) - set(sections)
    for name in procurl.__all__:
        examples = "".join(re.findall(r"^```pycon\n(.*?)^```$", sections[name], re.MULTILINE | re.DOTALL))
        assert re.search(rf"procurl\.{name}\b", examples), f"{name}: no example that uses it"


def test_every_public_name_has_a_docstring():
    for name in procurl.__all__:
        thing = getattr(procurl, name)
        if name not in ("__version__", "SETTINGS", "TEACHERS"):
            assert thing.__doc__ and not thing.__doc__.startswith(f"{name}("), name  # dataclasses make one up


# ------------------------------- the site; it takes long to build, so whoever tests in a browser tests all of it

NO_NETWORK = """
import socket, sys
def refuse(*_): raise OSError("the site must be built without network")
socket.socket.connect = socket.socket.connect_ex = refuse
from mkdocs.__main__ import cli
cli(["build", "--strict", "--quiet", "--site-dir", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Html(HTMLParser):
    """What a page loads, where it links to, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.links, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.add(values.get("id"))
        if tag == "a":
            self.links.append(values.get("href"))
            self.anchors.add(values.get("name"))
        elif tag in ("script", "img", "iframe", "source", "video"):
            self.loads.append(values.get("src"))
        elif tag == "link" and values.get("rel") != "canonical":
            self.loads.append(values.get("href"))


@pytest.fixture(scope="module")
def html(site):
    return {path: Html(path.read_text()) for path in site.rglob("*.html")}


@pytest.mark.browser
def test_the_site_has_every_page(html, site):
    for page in PAGES:
        made = site / re.sub(r"README\.md$", "index.md", page)
        assert made.with_suffix(".html") in html, page


@pytest.mark.browser
def test_pages_load_nothing_from_elsewhere(html):
    for path, page in html.items():
        for url in filter(None, page.loads):
            assert not urlsplit(url).netloc and ":" not in url.split("/")[0], f"{path.name}: {url}"
            if path.name != "404.html":  # its addresses are absolute, whatever was asked for
                assert (path.parent / unquote(urlsplit(url).path)).is_file(), f"{path.name}: {url}"


@pytest.mark.browser
def test_links_and_anchors_lead_somewhere(html):
    broken = []
    for path, page in html.items():
        for url in filter(None, page.links if path.name != "404.html" else []):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file() or (parts.fragment and unquote(parts.fragment) not in html[there].anchors):
                broken.append(f"{path.name}: {url}")
    assert broken == []


@pytest.mark.browser
def test_formulas_are_there_without_a_script(site):
    text = (site / "theory.html").read_text()
    assert text.count("<math") > 50 and "arithmatex" not in text and "\\langle" not in text


def test_links_of_pages_work_in_the_repository_too():
    """As a code host shows them."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s#]+)", text):
            assert target.startswith("https://") or (DOCS / page).parent.joinpath(target).exists(), f"{page}: {target}"


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(QuietHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    spec = importlib.util.spec_from_file_location("chromium", ROOT / "tools/chromium.py")
    chromium_tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chromium_tool)
    path = chromium_tool.find()
    assert path, "no Chromium: `make test-browser` installs one"
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_in_a_browser(browser, address, site, html, width):
    """No complaints, nothing from elsewhere, all pictures shown, and no page wider than the screen."""
    complaints, requests = [], []
    context = browser.new_context(viewport={"width": width, "height": 900})
    tab = context.new_page()
    tab.on("console", lambda message: complaints.append(f"{tab.url}: {message.text}"))
    tab.on("pageerror", lambda error: complaints.append(f"{tab.url}: {error}"))
    tab.on("request", lambda request: requests.append(request.url))
    for path in sorted(html):
        if path.name == "404.html":
            continue
        tab.goto(f"{address}/{path.relative_to(site).as_posix()}", wait_until="load")
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{tab.url} is {wide} pixels wide"
        unseen = tab.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)")
        assert unseen == [], tab.url
    context.close()
    assert complaints == []
    assert requests and all(url.startswith((address, "data:", "blob:")) for url in requests)


@pytest.mark.browser
def test_search_finds_a_page_from_a_server_and_from_a_folder(browser, address, site):
    for start in (f"{address}/index.html", (site / "index.html").as_uri()):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        tab = context.new_page()
        tab.goto(start)
        tab.click("input[name=query]")  # results are hidden until somebody is there
        tab.keyboard.type("resume a run")
        tab.wait_for_selector(".md-search-result__link", timeout=60_000)
        assert "html" in tab.get_attribute(".md-search-result__link", "href")
        context.close()
