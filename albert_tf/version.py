"""The version, in the one place that packaging, reports and exports read it from."""

__version__ = "0.1.0"
