"""Fault tools that only this repository's own tests use: proxies, poolers, pairs of servers, a simulator.

Nothing here is installed with arriero. Run it from the root of the repository.
"""
