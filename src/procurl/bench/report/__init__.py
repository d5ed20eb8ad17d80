"""One self-contained page about many runs: `procurl report DIR -o report.html`.

`page_data.py` says what is on the page, the files in `assets/` how it looks; here they become one file. It needs no
network, and its content security policy makes the browser enforce that.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
from pathlib import Path
from typing import Any

from procurl.bench.report import page_data
from procurl.bench.report.studies import Collection
from procurl.runs.store import disk


def page(collection: Collection) -> str:
    """The whole page as text."""
    files = importlib.resources.files("procurl.bench.report") / "assets"
    parts = {name: (files / name).read_text("utf-8") for name in ("template.html", "page.css", "page.js")}
    # The library's last line names a source map that is not there; a browser's tools would ask for it.
    chart = (files / "chart.umd.min.js").read_text("utf-8").partition("//# sourceMappingURL")[0]
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {_hash(parts['page.css'])}; script-src {_hash(chart)} {_hash(parts['page.js'])}"
    )
    filled = {
        "policy": html.escape(policy),
        "css": parts["page.css"],
        "chart": chart,
        "script": parts["page.js"],
        "data": embedded(page_data.page_data(collection)),
    }
    head, *rest = parts["template.html"].split("{{")  # one pass: what is filled in is never searched for places
    pieces = [head]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [filled[name], after]
    return "".join(pieces)


def write(path: Path, text: str) -> Path:
    """Write a page or a table, completely or not at all."""
    disk.made_folder(path.parent)
    disk.replace(path, text.encode(), "; choose another file")
    return path


def embedded(data: Any) -> str:
    """JSON that is safe between script tags: it holds no character that is special in HTML."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and the like are escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
