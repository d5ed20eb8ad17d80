"""What MkDocs does not do by itself, for the documentation site (`make docs`).

Pages link to files outside of docs/ by relative paths, so that they work on a code host. For the site such a file is
made a page or a picture of its own under repository/: a program with its source, a Markdown file as it is. And formulas
become MathML while the site is built: no script and no font is needed to read them.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PICTURES = (".png", ".gif", ".svg", ".jpg")
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # in the navigation without a link from a page
# A fenced block (left alone), or the target of a link
LINK = re.compile(r"(?P<fence>^ *(?P<marks>```+).*?^ *(?P=marks)$)|(?P<before>\]\()(?P<target>[^)\s#]+)", re.M | re.S)
MATHS = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.S)


def on_files(files: Files, config: Any) -> Files:
    """Add every file of the repository that a page links to, and those that these link to in turn."""
    waiting = [
        ("docs/" + file.src_uri, (ROOT / "docs" / file.src_uri).read_text()) for file in files.documentation_pages()
    ]
    waiting += [("mkdocs.yml", f"]({name})") for name in ALWAYS]
    while waiting:
        source, text = waiting.pop()
        for path in outside_links(source, text):
            uri = site_path(path)
            if files.get_file_from_path(uri) is not None:
                continue
            if path.endswith(PICTURES):
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
                continue
            content = (ROOT / path).read_text()
            files.append(
                File.generated(config, uri, content=content if path.endswith(".md") else listing(path, content))
            )
            if path.endswith(".md"):
                waiting.append((path, content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links that leave docs/ to the pages made for them."""
    source = source_path(page.file.src_uri)
    if source.endswith(".md"):
        return map_links(markdown, lambda target: site_link(page.file.src_uri, source, target))
    return markdown


def on_page_content(content: str, page: Any, config: Any, files: Files) -> str:
    """LaTeX to MathML."""
    return MATHS.sub(lambda found: formula(html.unescape(found["tex"]), display=found["tag"] == "div"), content)


def outside_links(source: str, text: str) -> list[str]:
    """The files outside of docs/ that a Markdown file links to, as paths from the root of the repository."""
    found: list[str] = []
    map_links(text, lambda target: found.append(resolved(source, target)) or target)
    return sorted({path for path in found if is_outside(path)})


def map_links(text: str, change: Callable[[str], str]) -> str:
    """The same text with other link targets; anchors and fenced code stay."""
    return LINK.sub(lambda m: m[0] if m["fence"] else m["before"] + change(m["target"]), text)


def resolved(source: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def is_outside(path: str) -> bool:
    return not path.startswith(("docs/", "..", "http", "mailto")) and (ROOT / path).is_file()


def site_path(path: str) -> str:
    """Where a file of the repository lies among the site's sources."""
    return f"repository/{path}" if path.endswith((".md", *PICTURES)) else f"repository/{path}.md"


def source_path(uri: str) -> str:
    """The inverse, for Markdown files."""
    return uri.removeprefix("repository/") if uri.startswith("repository/") else "docs/" + uri


def site_link(page: str, source: str, target: str) -> str:
    """A link target as it is within the site's sources."""
    path = resolved(source, target)
    if target.startswith(("http:", "https:", "mailto:", "#")) or "<" in target:
        return target
    if is_outside(path):
        uri = site_path(path)
    elif path.startswith("docs/"):
        uri = path.removeprefix("docs/")
    else:
        return target  # MkDocs will complain
    return posixpath.relpath(uri, posixpath.dirname(page) or ".")


def listing(path: str, content: str) -> str:
    """A page with a program's source."""
    language = {".py": "python", ".toml": "toml", ".yml": "yaml", ".cff": "yaml"}.get(Path(path).suffix, "text")
    return f"# {posixpath.basename(path)}\n\n`{path}` in the repository.\n\n`````{language}\n{content}`````\n"


def formula(tex: str, display: bool) -> str:
    mathml = latex2mathml.converter.convert(tex.strip(), display="block" if display else "inline")
    return f'<div class="formula">{mathml}</div>' if display else mathml
