"""The agent daemon for boards with real hardware."""

__version__ = "0.1.0"
