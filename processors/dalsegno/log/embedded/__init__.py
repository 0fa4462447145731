"""A real Apache Kafka broker of one node, started from `pip install` alone: no Docker, no system Java.

The rest of the product uses ``start``, ``stop`` and ``status``. The extra ``[embedded]`` brings what they need.
"""

from dalsegno.log.embedded.broker import BrokerStatus, start, status, stop

__all__ = ["BrokerStatus", "start", "status", "stop"]
