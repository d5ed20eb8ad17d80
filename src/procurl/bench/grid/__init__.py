"""`procurl bench`: grids of settings, strategies and seeds, and who runs them."""
