"""Kernels of our own: each stands behind the signature of a plain function, and can be deleted without it."""
