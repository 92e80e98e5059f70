"""memrelay's server: signed requests in, sealed memories stored, blind hybrid recall out."""

import os

__version__ = "0.1.0"

# Read as numpy is loaded. Its threads spin for a while after a product, and so take the processors
# from the event loop, the model and PostgreSQL.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
