"""The process and its machine: clocks, loops, logs, tracebacks."""
