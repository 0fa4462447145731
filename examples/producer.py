"""Write one short session to the log: python examples/producer.py [bootstrap servers] [topic prefix]"""

import sys
import uuid

from dalsegno import KafkaConfig, Publisher, blob, events

kafka = KafkaConfig(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
prefix = sys.argv[2] if len(sys.argv) > 2 else "dalsegno"

session_id = f"example-{uuid.uuid4()}"

with Publisher(kafka, prefix=prefix) as publisher, publisher.session(session_id, actor=("AGENT", "example")) as session:
    session.append(events.SessionCreated(workflow_name="hello", profile="OBSERVED", goal=blob("Say hello")))
    session.append(events.SessionStarted())
    session.append(events.NoteRecorded(kind="greeting", data=blob("hello")))
    receipt = session.append(events.SessionCompleted(outcome="SUCCESS")).result(30)
print(f"{session_id}: {receipt.seq} events, the last at offset {receipt.offset} of partition {receipt.partition}")
