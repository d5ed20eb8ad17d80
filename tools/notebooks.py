"""Run the notebooks from the top and store them with their outputs: `make notebooks`, or name some of them.

They run in a folder of their own, so that nothing is needed or left behind. The tests run them in the same way, with
fewer steps.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def executed(path: Path, folder: Path) -> Any:
    """The notebook with the outputs of a run in `folder`, by this interpreter; an error in a cell is raised."""
    notebook: Any = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(
        notebook, kernel_name="python3", timeout=None, resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day
    # Versions of this interpreter, which every run would change; the kernel's name is all that a reader needs.
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    )
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of notebooks (default: all), e.g. first_steps")
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # on a busy machine XLA complains about its compilation time
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in args.names] or sorted(NOTEBOOKS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
