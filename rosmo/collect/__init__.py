"""What records data sets: an online agent that learns, and written policies."""

from rosmo.collect.online import SETTINGS, Collected, collect, greedy_score, settings_of
from rosmo.collect.recording import record

__all__ = ["SETTINGS", "Collected", "collect", "greedy_score", "record", "settings_of"]
