"""Follow a projection: python examples/consumer.py [bootstrap servers] [topic prefix] [projection and version]"""

import json
import sys

from confluent_kafka import Consumer

from dalsegno import KafkaConfig, RowDecoder

kafka = KafkaConfig(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
prefix = sys.argv[2] if len(sys.argv) > 2 else "dalsegno"
projection = sys.argv[3] if len(sys.argv) > 3 else "sessions.v2"

decoder = RowDecoder(kafka, prefix=prefix)
# Rows are written in transactions: only "read_committed" sees none that were taken back.
settings = {"group.id": f"{prefix}.example", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
consumer = Consumer(kafka.client(settings))
consumer.subscribe([f"{prefix}.projection.{projection}"])
while True:
    message = consumer.poll(1.0)
    if message is not None and message.error():
        sys.exit(str(message.error()))
    if message is not None:  # the key names the row; its newest value counts; null: the row is gone
        row = decoder.decode(message.value())
        print(json.dumps({"key": json.loads(message.key() or b"[]"), "row": row}, default=bytes.hex), flush=True)
