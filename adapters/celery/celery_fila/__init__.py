"""Celery on Fila: a transport of kombu and a result backend of Celery.

Importing this package makes the URLs fila:// and filas:// (TLS) known to kombu and Celery. Where
it is installed with pip, kombu imports it by itself, and an application needs only the URL.
"""

from kombu.transport import TRANSPORT_ALIASES

__version__ = "0.0.0"

TRANSPORT_ALIASES.setdefault("fila", "celery_fila.transport:Transport")
TRANSPORT_ALIASES.setdefault("filas", "celery_fila.transport:SSLTransport")

# What kombu registers when it loads this package: a name without an encoder or a decoder.
SERIALIZER = (None, None, "application/x-fila", "utf-8")
