"""Who may import whom. The imports are read, not run: lazy ones inside functions count like any other."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "procurl"

# From the bottom to the top. A module may import its own entry and those of the rows above it in this list, never its
# neighbours in a row. The longest entry that a module's path begins with is its own.
LAYERS = (
    ("moved", "errors", "programs"),
    ("types",),
    ("check.numbers", "check.text", "check.findings"),
    ("check.fields", "devices"),
    ("check.space",),
    ("config", "targets"),
    ("installed", "suites"),
    ("envs.catalogue",),
    ("presets",),
    ("envs", "teachers", "students"),
    ("loop",),
    ("runs.store",),
    ("prompts",),
    ("check",),  # the contracts of environments and teachers
    ("runs",),
    ("integrations",),
    ("bench",),
    ("cli",),
    ("__main__",),
)
ALLOWED: dict[tuple[str, str], str] = {}  # (who, whom): why this one may point upwards

WITHOUT_JAX = (
    "procurl", "moved", "errors", "config", "installed", "suites", "presets", "check.numbers", "check.fields",
    "envs.catalogue", "envs.host_tasks", "envs.bipedal.stump_tracks", "runs.host.workers", "devices",
    "integrations.gymnasium", "bench.grid.suites", "bench.grid.worker", "bench.stats", "cli",
    "prompts",
)  # fmt: skip


@cache
def modules() -> dict[str, Path]:
    """Dotted path below procurl -> file; the package itself is `procurl`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "procurl"] = path
    return found


@cache
def imports(module: str) -> tuple[tuple[str, bool], ...]:
    """(imported name, whether that happens when the module is loaded). What only type checkers read is left out."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, at_once: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import):
                found.extend((alias.name, at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module}: a relative import"
                found.extend((f"{child.module}.{alias.name}", at_once) for alias in child.names)
            visit(child, at_once and not isinstance(child, ast.FunctionDef | ast.Lambda))

    visit(ast.parse(modules()[module].read_text()), True)
    return tuple(found)


def ours(name: str) -> str | None:
    """The module of this package that `procurl.a.b.Name` lies in; None if it is somebody else's."""
    if name.split(".")[0] != "procurl":
        return None
    parts = name.split(".")[1:]
    for n in range(len(parts), 0, -1):
        if ".".join(parts[:n]) in modules():
            return ".".join(parts[:n])
    return "procurl"


def arrows(at_once_only: bool = False) -> list[tuple[str, str]]:
    pairs = {
        (module, target)
        for module in modules()
        if module != "procurl"  # its lazy names lead everywhere
        for name, at_once in imports(module)
        if (target := ours(name)) not in (None, "procurl", module) and (at_once or not at_once_only)
    }
    return sorted(pairs)  # type: ignore[arg-type]


def entry(module: str) -> str:
    entries = [e for row in LAYERS for e in row if module == e or module.startswith(e + ".")]
    assert entries, f"{module} is in no layer: add it to LAYERS"
    return max(entries, key=len)


def level(module: str) -> int:
    return next(k for k, row in enumerate(LAYERS) if entry(module) in row)


def test_arrows_point_downwards():
    wrong = [
        f"{who} (layer {level(who)}) imports {whom} (layer {level(whom)})"
        for who, whom in arrows()
        if entry(who) != entry(whom) and level(whom) >= level(who) and (who, whom) not in ALLOWED
    ]
    assert not wrong, "\n".join(wrong)
    assert set(ALLOWED) <= set(arrows()), "an exception that nobody needs any more"


def test_no_cycle():
    """Counting lazy imports: a package and the modules in it are one another's business, so it is left out."""
    graph: dict[str, set[str]] = {}
    for who, whom in arrows():
        if not who.startswith(whom + ".") and not whom.startswith(who + "."):
            graph.setdefault(who, set()).add(whom)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("module", WITHOUT_JAX)
def test_no_jax(module):
    """Loading it loads neither JAX nor anything of ours that does; the way there is told."""
    seen: dict[str, str | None] = {}
    todo: list[tuple[str, str | None]] = [(module, None)]
    while todo:
        here, parent = todo.pop()
        if here in seen:
            continue
        seen[here] = parent
        for name, at_once in imports(here):
            if at_once and name.split(".")[0] in ("jax", "jaxlib"):
                way, at = [here], here
                while (at := seen[at]) is not None:  # type: ignore[assignment]
                    way.append(at)
                pytest.fail(" <- ".join(["jax", *way]))
            if at_once and (target := ours(name)) is not None:
                parts = target.split(".")
                todo += [(".".join(parts[:n]), here) for n in range(1, len(parts) + 1)]  # its packages load first
