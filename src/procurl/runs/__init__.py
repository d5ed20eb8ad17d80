"""Runs: the loop on real devices, for many seeds, watched and written down; `store` is their place on disk."""
