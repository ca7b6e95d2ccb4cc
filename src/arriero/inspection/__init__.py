"""Plain facts about a store and its attempts, read by stores and judged by explain."""
