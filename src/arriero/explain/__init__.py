"""Explains to people what a task, a convoy or a store is doing, and why."""
