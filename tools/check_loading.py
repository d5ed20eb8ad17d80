"""No file may run code when it is read: refuse the calls that could, wherever they stand (part of `make lint`).

ruff knows pickle, marshal, eval, exec and yaml.load (rules S102, S301, S302, S307, S506). This knows the rest:
modules that unpickle under another name, NumPy and torch told to, and Stable-Baselines3's archives, which
`procurl.integrations.sb3_archive` alone may open, for users who say that they trust the file. It also knows the few
files that may import by name: what a user names on the command line (`check/user_files.py`), what a user has installed
and asks for by name (`installed.py`), and our own tables. Nothing that reads a folder is among them.

    python tools/check_loading.py [FOLDER ...]
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FOLDERS = ("src", "examples", "benchmarks", "tools")
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle", "joblib", "yaml"}
FUNCTIONS = {"eval", "exec", "compile", "__import__", "read_pickle", "load_from_zip_file", "load_from_pkl"}
ALGORITHMS = {"PPO", "A2C", "SAC", "TD3", "DDPG", "DQN", "BaseAlgorithm", "VecNormalize", "algorithm"}
ARCHIVES = "sb3_archive.py"  # the one place where they may be opened
IMPORTS = {"import_module", "spec_from_file_location", "exec_module", "resolve_name"}
IMPORTERS = (  # what a user names; what is installed; tables of this package; an optional package by its own name
    "procurl/check/user_files.py", "procurl/installed.py", "procurl/__init__.py", "procurl/moved.py",
    "procurl/envs/settings.py", "procurl/teachers/__init__.py", "procurl/integrations/setting_env.py",
    "procurl/integrations/tracking.py", "procurl/suites.py",
)  # fmt: skip


def findings(source: str, name: str) -> list[str]:
    """FILE:LINE: WHY for every call in this source that can run code from a file."""
    found = []
    for node in ast.walk(ast.parse(source, name)):
        why = _why(node, name)
        if why:
            found.append(f"{name}:{node.lineno}: {why}")  # type: ignore[attr-defined]
    return found


def _why(node: ast.AST, name: str) -> str | None:
    if isinstance(node, ast.Import | ast.ImportFrom):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        unpickling = [m for m in modules if m.split(".")[0] in MODULES]
        return f"import of {unpickling[0]}, which can run code from a file" if unpickling else None
    if isinstance(node, ast.Call):
        owner, function = _called(node.func)
        options = {k.arg: k.value for k in node.keywords}
        is_entry_point = function == "load" and owner is not None and not node.args and not node.keywords
        if (function in IMPORTS or is_entry_point) and not name.endswith(IMPORTERS):
            return f"call of {function}, which imports by name: only {', '.join(IMPORTERS)} may"
        if function in FUNCTIONS and owner in (None, "builtins", "pandas", "pd", "save_util"):
            return f"call of {function}, which can run code from a file"
        if function in ("load", "memmap", "open_memmap") and not _is(options.get("allow_pickle"), False, missing=True):
            return "allow_pickle other than False: an array of objects is a pickle"
        if (owner, function) in {("np", "load"), ("numpy", "load")} and "allow_pickle" not in options:
            return "np.load without allow_pickle=False in so many words"
        if owner in ("torch", "th") and function == "load" and not _is(options.get("weights_only"), True):
            return "torch.load without weights_only=True"
        if (
            owner is not None
            and owner.split(".")[-1] in ALGORITHMS
            and function == "load"
            and not name.endswith(ARCHIVES)
        ):
            return f"{owner}.load unpickles: use procurl.integrations.sb3_archive"
    return None


def _called(function: ast.expr) -> tuple[str | None, str]:
    """("torch", "load") of torch.load, ("safetensors.numpy", "load") of that, (None, "eval") of eval."""
    if isinstance(function, ast.Attribute):
        return ast.unparse(function.value), function.attr
    return None, function.id if isinstance(function, ast.Name) else ""


def _is(value: ast.expr | None, expected: bool, missing: bool = False) -> bool:
    return missing if value is None else isinstance(value, ast.Constant) and value.value is expected


def main(folders: list[str]) -> int:
    root = Path(__file__).parent.parent
    files = [p for folder in folders or FOLDERS for p in sorted((root / folder).rglob("*.py"))]
    found = [line for path in files for line in findings(path.read_text(), str(path))]
    print("\n".join(found) or f"{len(files)} files: nothing that runs code from a file")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
