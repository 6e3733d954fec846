"""Gin at the edge: packaged configurations, and what tells gin about the registries."""

from rosmo.configs.bindings import ConfigError, exposed, import_module, load, packaged

__all__ = ["ConfigError", "exposed", "import_module", "load", "packaged"]
