"""What a mistake in a configuration is raised as."""


class ConfigError(ValueError):
    """A configuration that cannot be what its author meant."""
