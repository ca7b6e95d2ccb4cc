"""Explains to operators what a task, a convoy or a store is doing, and why."""
