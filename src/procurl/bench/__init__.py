"""Benchmarks: grids of runs, statistics, reports, animations, and the analysis in the paper."""
