"""The worker: one reader of the log, one agent that applies batches to shards, one emitter of what changed."""
