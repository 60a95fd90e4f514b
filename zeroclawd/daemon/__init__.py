"""Builds the house once, introduces the rooms to each other, and runs it."""
