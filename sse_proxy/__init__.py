"""A sidecar reverse proxy that makes a legacy chat host's event stream right."""

__version__ = "0.1.0"
