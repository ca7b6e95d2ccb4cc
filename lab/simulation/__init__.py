"""A small deterministic simulator: nodes of the production runtime in one thread, on a virtual clock, under faults.

``python -m lab.simulation --seeds 0:200`` runs seeds; a failing one prints the command that repeats it.
"""
