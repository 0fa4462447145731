"""The projection ``decider``: what decisions of a session depend on, as rows."""
