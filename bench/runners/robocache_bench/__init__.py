"""Python runners of robocache-bench.

Each module is a program; its argument is its job (see common).
"""
