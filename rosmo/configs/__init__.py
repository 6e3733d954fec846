"""Gin at the edge: packaged configurations, and what tells gin about the registries."""

from rosmo.configs.bindings import asked, exposed, load, packaged, said_of
from rosmo.configs.errors import ConfigError
from rosmo.configs.frozen import frozen, gin_kept, said
from rosmo.configs.imports import import_module, sources
from rosmo.configs.listing import Setting, settings
from rosmo.configs.opening import NOTHING, Consent, open_run
from rosmo.configs.portable import portable

__all__ = [
    "NOTHING",
    "ConfigError",
    "Consent",
    "Setting",
    "asked",
    "exposed",
    "frozen",
    "gin_kept",
    "import_module",
    "load",
    "open_run",
    "packaged",
    "portable",
    "said",
    "said_of",
    "settings",
    "sources",
]
