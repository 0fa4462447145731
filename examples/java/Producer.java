// A whole session from Java, written by schemas/README.md alone. Needs a JDK of version 17 or later and, on the class path,
// kafka-clients, slf4j and Jackson: the folder of the embedded broker has them.
//
//   dalsegno schema export --to avro
//   java -cp '.dalsegno/broker/jars/*' examples/java/Producer.java avro [bootstrap servers] [topic prefix]
//   java -cp '.dalsegno/broker/jars/*' examples/java/Producer.java avro --check schemas/vectors.json

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.*;
import java.nio.*;
import java.nio.file.*;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Utils;

/** The one writer of a new session: numbers, links and sends its events. */
public class Producer {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HexFormat HEX = HexFormat.of();

    final KafkaProducer<byte[], byte[]> kafka;
    final String prefix, session;
    final Path avro;
    final int partition;
    final Map<String, Schema> acknowledged = new HashMap<>();
    final Map<String, String> inside = new HashMap<>(); // the stage and the turn that own what is appended
    final List<Future<?>> sent = new ArrayList<>();
    String head; // the hash of the newest event
    long seq, recordedAt;

    public static void main(String[] given) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        Path avro = Path.of(given[0]);
        if (given.length > 2 && given[1].equals("--check")) System.exit(check(avro, JSON.readTree(new File(given[2]))));
        String servers = given.length > 1 ? given[1] : "localhost:9092", prefix = given.length > 2 ? given[2] : "dalsegno";
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "enable.idempotence", true, "acks", "all");
        try (var kafka = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            var told = new Producer(kafka, prefix, avro, "java-" + UUID.randomUUID());
            told.tell();
            for (var each : told.sent) each.get(); // where one fails only the log knows what is stored: resume the session
            System.out.printf("%s: %d events in partition %d%n", told.session, told.seq, told.partition);
        }
    }

    Producer(KafkaProducer<byte[], byte[]> kafka, String prefix, Path avro, String session) throws Exception {
        this.kafka = kafka;
        this.prefix = prefix;
        this.avro = avro;
        this.session = session;
        partition = partitionOf(session, kafka.partitionsFor(prefix + ".events").size());
    }

    /** One stage, one turn, a scripted model, and a tool that really runs. */
    void tell() throws Exception {
        var goal = blob("text/plain", "Welches Java l\u00e4uft hier?");
        append("SessionCreated", "HARNESS", "workflow_name", "ask", "profile", "OBSERVED", "goal", goal);
        var pins = new TreeSet<String>();
        for (String kind : List.of("WORKFLOW", "POLICY", "COMPRESSION_RULES", "TOOL_CATALOG", "HARNESS_BUILD",
                "PROMPT_TEMPLATE", "TOKENIZER", "VALIDATORS")) {
            var document = blob("application/json", kind.equals("TOOL_CATALOG") ? "[\"java_version\"]" : "null");
            var digest = document.get("digest");
            append("ConfigPinned", "HARNESS", "kind", kind, "name", "ask", "digest", digest, "content", document);
            pins.add(kind + ":ask:" + digest);
        }
        String pinned = hex(sha256(utf8(String.join("\n", pins))));
        append("SessionStarted", "HARNESS", "config_set_digest", pinned, "clock_start", now());

        String stage = "answer.1", turn = stage + "/t1", pack = turn + "/p", inference = turn + "/i", call = turn + "/c0";
        append("StageScheduled", "HARNESS", "stage_id", stage, "stage_name", "answer");
        inside.put("stage_id", stage);
        append("StageStarted", "HARNESS", "stage_id", stage);
        var question = Map.of("kind", "TEXT", "text", "Which Java runs here?");
        append("MessageReceived", "USER", "message_id", "m1", "role", "USER", "parts", List.of(question));
        inside.put("turn_id", turn);
        append("TurnStarted", "HARNESS", "turn_id", turn, "agent", "asker");
        var item = Map.of("item_id", "m1", "kind", "MESSAGE", "mode", "FULL", "position", 0);
        append("ContextPackBuilt", "HARNESS", "pack_id", pack, "builder_version", "1", "added", List.of(item));
        append("InferenceRequested", "HARNESS", "inference_id", inference, "purpose", "AGENT", "pack_id", pack);
        var arguments = blob("application/json", "{\"of\":\"vm\"}");
        var digest = arguments.get("digest");
        var wanted = Map.of("tool_call_id", call, "name", "java_version", "arguments_digest", digest);
        append("InferenceCompleted", "MODEL", "inference_id", inference, "model", "scripted",
            "usage", Map.of("input", 12, "output", 7), "tool_calls", List.of(wanted));
        append("ToolCallRequested", "HARNESS", "tool_call_id", call, "name", "java_version", "effect", "READ",
            "inference_id", inference, "arguments_digest", digest, "arguments", arguments);
        append("PolicyEvaluated", "POLICY", "decision_id", call + "/d1", "subject", "TOOL_CALL", "subject_id", call,
            "decision", "ALLOW");
        append("ToolCallAuthorized", "HARNESS", "tool_call_id", call, "basis", "POLICY_ALLOW",
            "decision_id", call + "/d1", "effective_arguments_digest", digest);
        append("ToolCallStarted", "HARNESS", "tool_call_id", call); // before it runs, so that a crash is visible
        var result = blob("text/plain", System.getProperty("java.vm.version"));
        append("ToolReceiptRecorded", "TOOL", "tool_call_id", call, "status", "OK", "receipt_id", "r1",
            "result_digest", result.get("digest"), "result", result);
        append("TurnCompleted", "HARNESS", "turn_id", turn);
        inside.remove("turn_id");
        append("StageCompleted", "HARNESS", "stage_id", stage);
        inside.clear();
        append("SessionCompleted", "HARNESS", "outcome", "SUCCESS", "result", result);
    }

    /** {@code fields}: name, value, name, value...; one that is left out takes its schema's default. */
    void append(String type, String actor, Object... fields) throws Exception {
        Schema schema = acknowledged.get(type);
        if (schema == null) {
            schema = new Schema(avro, "dalsegno.event.v1." + type);
            kafka.send(new ProducerRecord<>(prefix + ".schemas", utf8(hex(schema.hash)), utf8(schema.text))).get();
            acknowledged.put(type, schema);
        }
        UUID eventId = schema.isDecision ? decisionId(session, type, head) : uuid7();
        recordedAt = Math.max(now(), recordedAt); // a clock that is set back does not take the session along
        ObjectNode event = JSON.createObjectNode(), meta = event.putObject("meta");
        meta.put("session_id", session).put("seq", ++seq).put("epoch", 0).put("prev_hash", head);
        meta.put("recorded_at", recordedAt).put("event_id", eventId.toString()).put("actor_kind", actor).put("actor_id", "example");
        meta.put("writer", "Producer.java/1/" + ProcessHandle.current().pid());
        inside.forEach(meta::put);
        for (int i = 0; i < fields.length; i += 2) event.set((String) fields[i], JSON.valueToTree(fields[i + 1]));

        byte[] body = schema.body(event);
        head = schema.eventHash(body);
        var record = new ProducerRecord<>(prefix + ".events", partition, utf8(key(session, seq, head)), schema.framed(body));
        record.headers().add("dalsegno-hash", utf8(head)).add("ce_type", utf8(schema.name))
            .add("content-type", utf8("application/avro"));
        sent.add(kafka.send(record)); // the client keeps the order; what it has to send again are the same bytes
    }

    static String key(String session, long seq, String hash) { return session + ":" + seq + ":" + hash; }

    static int partitionOf(String session, int partitions) throws Exception {
        return (Utils.murmur2(utf8(session.split("~", 2)[0])) & 0x7fffffff) % partitions;
    }

    /** A closed schema: its fingerprints, and how a record becomes bytes. */
    static class Schema {
        final String name, text, canonical;
        final byte[] hash, frameId;
        final boolean isDecision;
        private final JsonNode root;
        private final Map<String, JsonNode> named = new HashMap<>();

        Schema(Path avro, String name) throws Exception {
            this.name = name;
            text = Files.readString(avro.resolve(name + ".avsc"));
            root = JSON.readTree(text);
            isDecision = root.path("class").asText().equals("D");
            canonical = canonical(root);
            hash = sha256(utf8(canonical));
            frameId = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(crc64(utf8(canonical))).array();
        }

        String eventHash(byte[] body) throws Exception { return hex(sha256(hash, body)); }

        byte[] framed(byte[] body) {
            return ByteBuffer.allocate(10 + body.length).put(HEX.parseHex("c301")).put(frameId).put(body).array();
        }

        byte[] body(JsonNode record) throws Exception {
            var out = new ByteArrayOutputStream();
            write(out, root, record);
            return out.toByteArray();
        }

        /** The parsing canonical form. In a closed schema names are full, and each type is written out at its first use. */
        private String canonical(JsonNode type) {
            if (type.isTextual()) return type.toString();
            var parts = new StringJoiner(",", "[", "]");
            if (type.isArray()) for (JsonNode branch : type) parts.add(canonical(branch));
            if (type.isArray()) return parts.toString();
            if (type.has("name")) named.put(type.get("name").asText(), type);
            for (JsonNode field : type.path("fields"))
                parts.add("{\"name\":" + field.get("name") + ",\"type\":" + canonical(field.get("type")) + "}");
            String start = "{\"name\":" + type.get("name") + ",\"type\":" + type.get("type");
            return switch (type.get("type").asText()) {
                case "record" -> start + ",\"fields\":" + parts + "}";
                case "enum" -> start + ",\"symbols\":" + type.get("symbols") + "}";
                case "fixed" -> start + ",\"size\":" + type.get("size") + "}";
                case "array" -> "{\"type\":\"array\",\"items\":" + canonical(type.get("items")) + "}";
                default -> type.get("type").toString(); // a primitive with a logical type is that primitive
            };
        }

        /** Avro's binary encoding, as far as these schemas need it. Bytes and digests are hex in the JSON. */
        private void write(ByteArrayOutputStream out, JsonNode type, JsonNode value) throws Exception {
            if (type.isArray()) { // a union, here always of null and one type: the number of the branch, then the value
                writeLong(out, value.isNull() ? 0 : 1);
                if (!value.isNull()) write(out, type.get(1), value);
                return;
            }
            String kind = type.isTextual() ? type.asText() : type.get("type").asText();
            switch (kind) {
                case "record" -> {
                    int given = 0;
                    for (JsonNode field : type.get("fields")) {
                        String name = field.get("name").asText();
                        if (value.has(name)) given++;
                        JsonNode found = value.has(name) ? value.get(name) : field.get("default");
                        require(found != null, "without " + name, value);
                        write(out, field.get("type"), found);
                    }
                    require(given == value.size(), "fields that are not in " + type.get("name"), value);
                }
                case "array" -> {
                    if (!value.isEmpty()) writeLong(out, value.size());
                    for (JsonNode item : value) write(out, type.get("items"), item);
                    writeLong(out, 0);
                }
                case "enum" -> {
                    int symbol = JSON.convertValue(type.get("symbols"), List.class).indexOf(value.asText());
                    require(symbol >= 0, "no symbol of " + type.get("name"), value);
                    writeLong(out, symbol);
                }
                case "fixed", "bytes", "string" -> {
                    require(value.isTextual(), "no text", value);
                    byte[] raw = kind.equals("string") ? utf8(value.asText()) : HEX.parseHex(value.asText());
                    if (kind.equals("fixed")) require(raw.length == type.get("size").asInt(), "another size", value);
                    else writeLong(out, raw.length);
                    out.writeBytes(raw);
                }
                case "boolean" -> {
                    require(value.isBoolean(), "neither true nor false", value);
                    out.write(value.asBoolean() ? 1 : 0);
                }
                case "int", "long" -> {
                    boolean fits = kind.equals("int") ? value.canConvertToInt() : value.canConvertToLong();
                    require(value.isIntegralNumber() && fits, "no " + kind, value);
                    writeLong(out, value.asLong());
                }
                default -> write(out, named.get(kind), value); // a type that was written out before
            }
        }

        private static void writeLong(ByteArrayOutputStream out, long number) {
            long rest = number << 1 ^ number >> 63; // zigzag, then seven bits a byte, the lowest first
            for (; (rest & ~0x7fL) != 0; rest >>>= 7) out.write((int) (rest & 0x7f | 0x80));
            out.write((int) rest);
        }

        private static void require(boolean holds, String found, JsonNode where) {
            if (!holds) throw new IllegalArgumentException(found + ": " + where);
        }
    }

    static Map<String, Object> blob(String mediaType, String content) throws Exception {
        byte[] raw = utf8(content);
        return Map.of("digest", hex(sha256(raw)), "size", raw.length, "media_type", mediaType, "inline", hex(raw));
    }

    static long now() { return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()); }

    static UUID uuid7() {
        UUID random = UUID.randomUUID();
        long begin = System.currentTimeMillis() << 16 | 0x7000 | random.getMostSignificantBits() & 0xfff;
        return new UUID(begin, random.getLeastSignificantBits());
    }

    static UUID uuid5(UUID space, String name) throws Exception {
        var named = ByteBuffer.allocate(16 + utf8(name).length);
        named.putLong(space.getMostSignificantBits()).putLong(space.getLeastSignificantBits()).put(utf8(name));
        var raw = ByteBuffer.wrap(MessageDigest.getInstance("SHA-1").digest(named.array()));
        return new UUID(raw.getLong() & ~0xf000L | 0x5000, raw.getLong() & ~(3L << 62) | 1L << 63);
    }

    static UUID decisionId(String session, String type, String prevHash) throws Exception {
        UUID urls = UUID.fromString("6ba7b811-9dad-11d1-80b4-00c04fd430c8"); // RFC 9562's name space of URLs
        return uuid5(uuid5(urls, "dalsegno:decision"), String.join("\n", session, type, prevHash, "0"));
    }

    static byte[] sha256(byte[]... parts) throws Exception {
        var digest = MessageDigest.getInstance("SHA-256");
        for (byte[] part : parts) digest.update(part);
        return digest.digest();
    }

    /** CRC-64-AVRO, as the Avro specification has it. */
    static long crc64(byte[] data) {
        long empty = 0xc15d213aa4d7a795L, crc = empty;
        for (byte each : data) {
            crc ^= each & 0xff;
            for (int bit = 0; bit < 8; bit++) crc = crc >>> 1 ^ empty & -(crc & 1);
        }
        return crc;
    }

    static String hex(byte[] raw) { return HEX.formatHex(raw); }

    /** Refuses half of a surrogate pair, where {@code String.getBytes} would write a question mark. */
    static byte[] utf8(String text) throws Exception {
        ByteBuffer raw = UTF_8.newEncoder().encode(CharBuffer.wrap(text));
        return Arrays.copyOf(raw.array(), raw.limit());
    }

    /** Computes what the test vectors say from their inputs and prints what differs; the exit code. */
    static int check(Path avro, JsonNode vectors) throws Exception {
        int wrong = 0;
        for (JsonNode each : vectors.get("partitions"))
            wrong += differs(each, "partition", partitionOf(each.get("session_id").asText(), each.get("partitions").asInt()));
        for (JsonNode each : vectors.get("schemas")) {
            var schema = new Schema(avro, each.get("name").asText());
            wrong += differs(each, "canonical_form", schema.canonical);
            wrong += differs(each, "schema_hash", hex(schema.hash)) + differs(each, "frame_id", hex(schema.frameId));
        }
        for (JsonNode each : vectors.get("events")) {
            String session = each.get("key").asText().replaceFirst(":[^:]*:[^:]*$", ""); // an id may hold colons
            wrong += differs(each, "partition_of_16", partitionOf(session, 16));
            if (each.get("value").isNull()) continue; // a tombstone is nothing but its key
            var schema = new Schema(avro, each.get("type").asText());
            byte[] body = schema.body(each.get("record"));
            wrong += differs(each, "body", hex(body)) + differs(each, "value", hex(schema.framed(body)));
            JsonNode meta = each.get("record").get("meta");
            String hash = schema.eventHash(body), key = key(meta.get("session_id").asText(), meta.get("seq").asLong(), hash);
            wrong += differs(each, "hash", hash) + differs(each, "key", key);
        }
        System.out.printf("%d partitions, %d schemas, %d records: %d differences%n", vectors.get("partitions").size(),
            vectors.get("schemas").size(), vectors.get("events").size(), wrong);
        return wrong == 0 ? 0 : 1;
    }

    static int differs(JsonNode vector, String field, Object computed) {
        if (vector.get(field).asText().equals(computed.toString())) return 0;
        System.out.printf("%s: computed %s for %s%n", field, computed, vector);
        return 1;
    }
}
