"""Write one short session to the log: python examples/producer.py [bootstrap servers] [topic prefix]"""

import sys
import uuid

from dalsegno import KafkaConfig, Publisher, events, inline_blob

kafka = KafkaConfig(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
prefix = sys.argv[2] if len(sys.argv) > 2 else "dalsegno"

with Publisher(kafka, prefix=prefix) as publisher:
    session = publisher.session(f"example-{uuid.uuid4()}", actor=("AGENT", "example"))
    session.append(events.SessionCreated(workflow_name="hello", profile="OBSERVED", goal=inline_blob("Say hello")))
    session.append(events.SessionStarted())
    session.append(events.NoteRecorded(kind="greeting", data=inline_blob("hello")))
    receipt = session.append(events.SessionCompleted(outcome="SUCCESS")).result(30)
    print(f"{session.session_id}: {receipt.seq} events, the last at offset {receipt.offset} of {receipt.partition}")
