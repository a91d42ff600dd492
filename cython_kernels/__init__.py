"""Compiled kernels: tight loops over memory. Their NumPy twins are in ``colstore_io.kernels_numpy``."""
