"""The notebooks run from top to bottom, and are stored as a whole run left them."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
STEPS = {"first_steps": "30000", "own_environment": "4096"}


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def pictures(notebook):
    """The kinds of pictures, in the order of the notebook."""
    data = [output.get("data", {}) for cell in code_cells(notebook) for output in cell["outputs"]]
    return [kind for d in data for kind in ("image/png", "image/gif") if kind in d]


EXPECTED = {
    "first_steps": ["image/png", "image/png", "image/png", "image/gif"],
    "own_environment": ["image/png", "image/png"],
}


def test_both_are_there():
    assert [path.stem for path in NOTEBOOKS] == sorted(EXPECTED) == sorted(STEPS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_with_the_outputs_of_one_run(path):
    assert path.stat().st_size < 1_000_000
    notebook = json.loads(path.read_text())
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert pictures(notebook) == EXPECTED[path.stem]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    said = "".join("".join(o.get("text", "")) for o in outputs)
    assert not re.search(r"/(home|root|tmp|Users|work)/", said)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    text = "".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (path.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    pytest.importorskip("nbclient", reason="needs procurl[notebooks]")
    monkeypatch.syspath_prepend(ROOT / "tools")
    import notebooks

    monkeypatch.setenv("PROCURL_NOTEBOOK_STEPS", STEPS[path.stem])
    monkeypatch.setenv("PROCURL_NOTEBOOK_SEEDS", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")  # as in the tool
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    notebook = notebooks.executed(path, tmp_path)
    assert pictures(notebook) == EXPECTED[path.stem]
    streams = [o for cell in code_cells(notebook) for o in cell["outputs"] if o["output_type"] == "stream"]
    assert not [o["text"] for o in streams if o["name"] == "stderr"]
    assert sys.executable not in "".join(o["text"] for o in streams)
