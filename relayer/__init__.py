"""memrelay's server: signed requests in, sealed memories stored, blind hybrid recall out."""

__version__ = "0.1.0"
