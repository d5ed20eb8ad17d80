"""The names that `import procurl` offers."""

import contextlib
import importlib
import inspect
import pkgutil

import procurl
from procurl.errors import MissingExtraError


def test_no_public_name_is_hidden_by_a_module():
    """Importing procurl/evaluate.py once made `procurl.evaluate` that module, in place of the function."""
    for module in pkgutil.walk_packages(procurl.__path__, "procurl."):
        with contextlib.suppress(ImportError, MissingExtraError):  # without its extra
            importlib.import_module(module.name)
    for name in procurl.__all__:
        assert not inspect.ismodule(getattr(procurl, name)), name
