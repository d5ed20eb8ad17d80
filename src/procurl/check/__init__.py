"""What a user may give, and what procurl asks of it.

`numbers` and `text` look at single values, and know no JAX. `space`, `env`, `host` and `teacher` test what a user has
written against its contract, and gather all that they find (`findings`). `contracts` turns that into errors:
`check_space`, `check_env`, `check_teacher`, which load when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["CheckError", "check_env", "check_space", "check_teacher"]

if TYPE_CHECKING:
    from procurl.check.contracts import check_env, check_space, check_teacher
    from procurl.errors import CheckError


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'procurl.check' has no attribute {name!r}")
    from procurl.check import contracts

    return getattr(contracts, name)
