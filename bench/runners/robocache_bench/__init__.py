"""The runners of robocache-bench in Python: each module is a program whose only argument is its job, as JSON (see common)."""
