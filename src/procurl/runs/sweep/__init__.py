"""Many points of hyper-parameters in one compiled program: `sweep.py` is where to begin."""
