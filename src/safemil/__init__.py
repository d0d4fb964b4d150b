"""Learn safe policies from incident logs."""

__version__ = "0.1.0"
