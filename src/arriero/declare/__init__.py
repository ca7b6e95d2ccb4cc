"""Declarations of steps and workflows, and the functions that workflow code may call."""
