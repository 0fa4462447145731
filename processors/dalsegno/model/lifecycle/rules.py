"""What each lifecycle rule says, in one line for people; ``schemas/README.md`` says it in full."""

from __future__ import annotations

RULES = {
    "E1": "a control event stands outside the chain",
    "E5": "an unknown type stands on the path only if ignorable",
    "S1": "SessionCreated is the first event, and occurs once",
    "S2": "SessionStarted occurs once; what the session works with (workflow, policy, tools, ...) is pinned before",
    "S3": "between SessionCreated and SessionStarted stand only pins, notes, messages, a fork and recoveries",
    "S4": "one event ends the session and lists what is open; only verdicts, notes and the like follow it",
    "S5": "SessionRecovered raises the epoch, names its predecessor, and settles every open operation once",
    "S6": "a fork says so at seq 2, and begins where nothing is open in its parent",
    "S7": "at a STABLE checkpoint no tool, inference or compression is in flight",
    "P1": "an operation is opened once",
    "P2": "what goes on with an operation, or ends it, finds it open",
    "I1": "what an inference is about (context pack, subject) is in the session; one attempt at a time is open",
    "I2": "an attempt at an inference ends once; all attempts have the same request",
    "K2": "a compression ends once",
    "U1": "a tool call that cites an inference is listed by its completion",
    "U2": "a tool call is authorized or rejected once, by a decision, approval or grant that is in the session",
    "U3": "a tool call starts only when authorized, with the arguments that were; attempts count up by one",
    "U4": "an attempt at a tool call ends once; one of unknown outcome is made again only if that is safe",
    "V1": "the target of a validation is in the session",
    "V2": "a validation is decided once, by a basis that is in the session",
    "F1": "in the profile STRICT, digests, times and ids that a recording may lack are present",
}
