"""The fold of a history, and the invariants that it must keep. It knows nothing of the core's decisions."""
