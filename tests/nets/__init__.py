"""Nets: what users hold, kept as data.

What a change means to change, `python -m tests.nets.freeze` writes anew. They reach the program by its public
imports and its command line alone.
"""
