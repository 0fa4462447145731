"""Data sets from recorded sessions: rows in the form of OpenAI's chat API, each with where it comes from.

``reading`` gives a session's events, with contents and after redaction; ``history`` sorts them; ``context`` says what a
model saw; ``rows`` makes the rows, ``pairs`` the preference pairs; ``folder`` writes them, ``card`` tells of them.
All but ``reading``, ``choosing``, ``spool``, ``folder`` and ``build`` are pure.
"""
