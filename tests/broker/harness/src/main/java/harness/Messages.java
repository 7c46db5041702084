package harness;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.zip.DeflaterOutputStream;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.*; // MessageExtBrokerInner lived here before 5.0

/**
 * Messages as they reach the store: what a producer sent, and what the broker made of it.
 *
 * <p>Kinds: normal, zlib (compressed by the client), batch, delay (level 17 or 18), prepared, commit, rollback, ipv6
 * (born host and store host), long_topic (190 bytes: version 2 of a record, from 5.0 on), inner_batch (one record that
 * holds several messages, for a topic of batch_topics).
 */
final class Messages {
    record Made(String kind, MessageExt message) {
    }

    private static final Map<String, Integer> TOPICS = Map.of("TopicA", 4, "orders", 2);
    private static final Map<String, Integer> KINDS = Map.of("normal", 80, "batch", 10, "delay", 5, "zlib", 5);
    private static final String LONG_TOPIC = "%RETRY%" + "a-group-with-a-long-name-".repeat(8).substring(0, 183);
    private static final String[] TAGS = {"TagA", "TagB", "付款", "größe"};
    private static final String SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX";

    // MessageSysFlag has them from 5.0 on.
    private static final int INNER_BATCH_FLAG = 0x1 << 7;
    private static final int NEED_UNWRAP_FLAG = 0x1 << 6;

    private final Request spec;
    private final Random random;
    private final List<String> topics;
    private final Map<String, Integer> queues;
    private final Map<String, Integer> kinds;

    Messages(Request spec, Random random) {
        this.spec = spec;
        this.random = random;
        this.queues = spec.numbers("topics", TOPICS);
        this.topics = queues.keySet().stream().sorted().toList();
        this.kinds = spec.numbers("kinds", KINDS);
    }

    Made next(int number) throws Exception {
        String kind = drawKind();
        String topic = topics.get(random.nextInt(topics.size()));
        int queue = random.nextInt(queues.get(topic));
        return new Made(kind, switch (kind) {
            case "batch" -> batch(topic, queue, items(topic, number));
            case "inner_batch" -> innerBatch(number);
            default -> single(kind, topic, queue, number);
        });
    }

    private String drawKind() {
        List<String> names = kinds.keySet().stream().sorted().toList();
        int left = random.nextInt(kinds.values().stream().mapToInt(weight -> weight).sum());
        for (String name : names) {
            left -= kinds.get(name);
            if (left < 0) {
                return name;
            }
        }
        throw new IllegalStateException();
    }

    private MessageExtBrokerInner single(String kind, String topic, int queue, int number) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBody(body());
        describe(message, number);
        hosts(message);
        message.setSysFlag(0);
        // As SendMessageProcessor does; without any property the store does not take the message.
        MessageAccessor.putProperty(message, "CLUSTER", "DefaultCluster");
        switch (kind) {
            case "normal" -> { }
            case "zlib" -> {
                message.setBody(zlib(message.getBody()));
                message.setSysFlag(MessageSysFlag.COMPRESSED_FLAG);
            }
            case "prepared" -> message.setSysFlag(MessageSysFlag.TRANSACTION_PREPARED_TYPE);
            case "commit" -> {
                message.setSysFlag(MessageSysFlag.TRANSACTION_COMMIT_TYPE);
                message.setPreparedTransactionOffset(number);
            }
            case "rollback" -> {
                message.setSysFlag(MessageSysFlag.TRANSACTION_ROLLBACK_TYPE);
                message.setPreparedTransactionOffset(number);
            }
            case "ipv6" -> {
                message.setBornHost(host6(7));
                Private.call(message, "setBornHostV6Flag");
                message.setStoreHost(host6(1));
                Private.call(message, "setStoreHostAddressV6Flag");
            }
            case "long_topic" -> {
                message.setTopic(LONG_TOPIC);
                message.setQueueId(0);
            }
            case "delay" -> delay(message);
            default -> throw new IllegalArgumentException(kind);
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    /** As HookUtils#transformDelayLevelMessage of the broker does; before 5.0 CommitLog#putMessage did the same. */
    private void delay(MessageExtBrokerInner message) {
        int level = 17 + random.nextInt(2);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_DELAY_TIME_LEVEL, "" + level);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, "" + message.getQueueId());
        message.setTopic(SCHEDULE_TOPIC);
        message.setQueueId(level - 1);
    }

    private List<Message> items(String topic, int number) {
        List<Message> items = new ArrayList<>();
        for (int i = 0, count = 2 + random.nextInt(4); i < count; i++) {
            Message item = new Message(topic, body());
            describe(item, number);
            items.add(item);
        }
        return items;
    }

    private static MessageExtBatch batch(String topic, int queue, List<Message> items) {
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(topic);
        batch.setQueueId(queue);
        batch.setBody(MessageBatch.generateFromList(items).encode());
        hosts(batch);
        return batch;
    }

    /** As SendMessageProcessor#sendBatchMessage makes it. */
    private MessageExt innerBatch(int number) throws Exception {
        Map<String, Integer> topics = spec.numbers("batch_topics", Map.of());
        String topic = topics.keySet().stream().sorted().toList().get(random.nextInt(topics.size()));
        List<Message> items = items(topic, number);
        MessageExtBatch batch = batch(topic, random.nextInt(topics.get(topic)), items);
        batch.setSysFlag(INNER_BATCH_FLAG | NEED_UNWRAP_FLAG);
        Private.call(batch, "setInnerBatch", true);
        MessageAccessor.putProperty(batch, "INNER_NUM", "" + items.size());
        Private.call(batch, "setPropertiesString", MessageDecoder.messageProperties2String(batch.getProperties()));
        return batch;
    }

    private void describe(Message message, int number) {
        if (random.nextInt(8) != 0) {
            message.setTags(TAGS[random.nextInt(TAGS.length)]);
        }
        if (random.nextInt(6) != 0) {
            message.setKeys("K" + number + (random.nextInt(3) == 0 ? " U" + random.nextInt(40) : ""));
        }
        if (random.nextInt(7) != 0) {
            MessageClientIDSetter.setUniqID(message);
        }
        if (random.nextInt(5) == 0) {
            message.putUserProperty("größe", "日志 " + number);
        }
    }

    private static void hosts(MessageExt message) {
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 53422));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
    }

    private static InetSocketAddress host6(int last) throws IOException {
        return new InetSocketAddress(InetAddress.getByName("2001:db8::" + last), 10911);
    }

    private byte[] body() {
        int least = spec.number("body_min", 1);
        int length = least + random.nextInt(spec.number("body_max", 600) - least + 1);
        byte[] body = new byte[length];
        if (random.nextInt(4) == 0) {
            random.nextBytes(body);
            return body;
        }
        byte[] words = ("order " + random.nextInt(1000) + " of 日志; ").getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < length; i++) {
            body[i] = words[i % words.length];
        }
        return body;
    }

    private static byte[] zlib(byte[] body) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DeflaterOutputStream stream = new DeflaterOutputStream(bytes)) {
            stream.write(body);
        }
        return bytes.toByteArray();
    }
}
