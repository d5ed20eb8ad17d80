"""The benchmark settings (`settings.py`), loaded on first use: workers that play in Box2D stay free of JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["SETTINGS", "make"]

if TYPE_CHECKING:
    from procurl.envs.settings import SETTINGS, make


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'procurl.envs' has no attribute {name!r}")
    from procurl.envs import settings

    return getattr(settings, name)
