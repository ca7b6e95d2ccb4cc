"""JSON that is kept or sent: types to JSON and back, and its limits."""
