"""Traces of tasks for OpenTelemetry: which spans a command has ended, and their way to the tracer provider.

``App.trace()`` turns them on. Needs the extra ``otel``; the modules that load it are imported by that method alone.
"""
