"""Loops that load, decide and apply. No rule lives here."""
