"""Redaction: taking secrets out of events before they are hashed. The rest of the product uses ``Redactor``.

``rules`` says what is taken out, ``event`` walks through an event, ``texts`` through a text and the JSON in it (which
``json_spans`` finds), ``notes`` says what was done. All of it is pure.
"""

from dalsegno.log.redaction.rules import RedactionRule, Redactor

__all__ = ["RedactionRule", "Redactor"]
