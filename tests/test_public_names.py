"""The names that `import procurl` offers."""

import importlib
import inspect
import pkgutil
from importlib.util import find_spec

import procurl

OPTIONAL = ["integrations", "minigrid.package", "minigrid.render"]  # need an extra
# Where extras are missing, as in `make pythons`, what needs them is left out too.
OPTIONAL += [word for package, word in (("Box2D", "bipedal"), ("gymnasium", "minigrid_view")) if not find_spec(package)]


def test_no_public_name_is_hidden_by_a_module():
    """Importing procurl/evaluate.py once made `procurl.evaluate` that module, in place of the function."""
    for module in pkgutil.walk_packages(procurl.__path__, "procurl."):
        if not any(word in module.name for word in OPTIONAL):
            importlib.import_module(module.name)
    for name in procurl.__all__:
        assert not inspect.ismodule(getattr(procurl, name)), name
