"""A course of small programs: each lesson runs alone, offline, in seconds, and grows out of the one before.

Begin with `python lessons/l00_chat.py`; `python -m agentloop lessons` lists them all.
"""
