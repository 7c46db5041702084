package harness;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.*; // MessageExtBrokerInner lives here from 5.0 on
import org.apache.rocketmq.store.*;

/**
 * What a store that has started gives to those who ask: consumers, searches by key, producers.
 *
 * <p>Answers {@code drained} for every queue, with {@code client} also what a client decodes of it, {@code consumed} for every place of {@code consumers}, {@code found} for every key asked for, {@code put} for every queue of
 * {@code put} in the request.
 */
final class Serving {
    private static final int PULL = 32;
    private static final int MOST_PULLS = 100_000;
    private static final int MOST_KEYS = 64; // a broker never gives more of one
    private static final int BORN_HOST_V6 = 0x1 << 4; // MessageSysFlag has it from 4.6.0 on

    /** Each queue as a consumer drains it: pulls of 32 from its minimum, each at the nextBeginOffset of the one before. */
    static List<Object> drained(DefaultMessageStore store, int atOnce, boolean client) {
        List<Object> rows = new ArrayList<>();
        for (var topic : new TreeMap<>(store.getConsumeQueueTable()).entrySet()) {
            for (var entry : new TreeMap<>(topic.getValue()).entrySet()) {
                rows.add(drain(store, topic.getKey(), entry.getKey(), entry.getValue().getMinOffsetInQueue(),
                    entry.getValue().getMaxOffsetInQueue(), atOnce, client));
            }
        }
        return rows;
    }

    private static Map<String, Object> drain(DefaultMessageStore store, String topic, int queue, long min, long max, int atOnce,
        boolean client) {
        List<Object> decoded = new ArrayList<>();
        List<Object> got = new ArrayList<>();
        List<Object> pulls = new ArrayList<>();
        long offset = min;
        for (int i = 0; offset < max && i < MOST_PULLS; i++) {
            GetMessageResult result = store.getMessage("judge", topic, queue, offset, atOnce, null);
            if (result == null) {
                pulls.add(List.of(offset, "null", -1));
                break;
            }
            List<Long> offsets = offsets(result);
            List<SelectMappedBufferResult> records = result.getMessageMapedList();
            for (int record = 0; record < records.size(); record++) {
                got.add(row(records.get(record), record < offsets.size() ? offsets.get(record) : -1));
            }
            pulls.add(List.of(offset, "" + result.getStatus(), result.getNextBeginOffset()));
            if (client && !decode(result, decoded)) {
                pulls.add(List.of(offset, "SYSTEM_ERROR", offset));
                result.release();
                break;
            }
            result.release();
            if (result.getNextBeginOffset() <= offset) {
                break;
            }
            offset = result.getNextBeginOffset();
        }
        Map<String, Object> drained = new LinkedHashMap<>();
        drained.put("topic", topic);
        drained.put("queue_id", queue);
        drained.put("min_offset", min);
        drained.put("max_offset", max);
        drained.put("end", offset);
        drained.put("got", got);
        drained.put("pulls", pulls);
        drained.put("decoded", decoded);
        return drained;
    }

    /**
     * What the client of this release makes of a pull: [topic, queue id, queue offset, physical offset, keys].
     *
     * <p>False where the broker fails: it reads the store time of each record. Source:
     * PullMessageProcessor#readGetMessageResult, PullAPIWrapper#processPullResult.
     */
    private static boolean decode(GetMessageResult result, List<Object> decoded) {
        ByteBuffer all = ByteBuffer.allocate(result.getBufferTotalSize());
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            ByteBuffer one = buffer.duplicate();
            if (one.remaining() < 64) {
                return false;
            }
            all.put(one);
        }
        all.flip();
        for (MessageExt message : MessageDecoder.decodes(all)) {
            decoded.add(List.of("" + message.getTopic(), message.getQueueId(), message.getQueueOffset(),
                message.getCommitLogOffset(), "" + message.getKeys()));
        }
        return true;
    }

    /** What a consumer gets that goes on at each [topic, queue id, queue offset]: status, nextBeginOffset, first record. */
    static List<Object> consumed(DefaultMessageStore store, List<List<String>> places, int atOnce) {
        List<Object> rows = new ArrayList<>();
        for (List<String> place : places) {
            long offset = Long.parseLong(place.get(2));
            GetMessageResult result = store.getMessage("judge", place.get(0), Integer.parseInt(place.get(1)), offset, atOnce, null);
            if (result == null) {
                rows.add(List.of("null", -1, List.of()));
                continue;
            }
            List<SelectMappedBufferResult> records = result.getMessageMapedList();
            List<Long> offsets = offsets(result);
            rows.add(List.of("" + result.getStatus(), result.getNextBeginOffset(),
                records.isEmpty() ? List.of() : row(records.get(0), offsets.isEmpty() ? -1 : offsets.get(0))));
            result.release();
        }
        return rows;
    }

    /** The queue offset of each record by the queue, where the release says it; else of the record itself. */
    @SuppressWarnings("unchecked")
    private static List<Long> offsets(GetMessageResult result) {
        try {
            return (List<Long>) Private.call(result, "getMessageQueueOffset");
        } catch (Exception absent) {
            return Collections.emptyList();
        }
    }

    /**
     * Physical offset, length, CRC of all bytes, queue offset that the record has and that of its place in the queue, CRC
     * of all bytes but the store timestamp.
     */
    private static List<Object> row(SelectMappedBufferResult record, long place) {
        ByteBuffer buffer = record.getByteBuffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        long own = bytes.length < 28 ? -1 : ByteBuffer.wrap(bytes).getLong(20);
        long all = crc(bytes);
        int time = bytes.length < 76 ? -1 : (ByteBuffer.wrap(bytes).getInt(36) & BORN_HOST_V6) == 0 ? 56 : 68;
        if (time > 0) {
            ByteBuffer.wrap(bytes).putLong(time, 0);
        }
        return List.of(record.getStartOffset(), bytes.length, all, own, place, crc(bytes));
    }

    private static long crc(byte[] bytes) {
        CRC32 crc = new CRC32();
        crc.update(bytes);
        return crc.getValue();
    }

    /** The physical offsets that each [topic, key] is found at. */
    static List<Object> found(DefaultMessageStore store, List<List<String>> keys) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (List<String> key : keys) {
            QueryMessageResult result = store.queryMessage(key.get(0), key.get(1), MOST_KEYS, 0, Long.MAX_VALUE);
            List<Long> places = new ArrayList<>();
            for (Object record : (List<?>) Private.get(result, "messageMapedList")) {
                places.add(((SelectMappedBufferResult) record).getStartOffset());
            }
            result.release();
            Collections.sort(places);
            rows.add(places);
        }
        return rows;
    }

    /** One small message into each [topic, queue id]: [status, physical offset, queue offset]. */
    static List<Object> put(DefaultMessageStore store, List<List<String>> queues) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (List<String> queue : queues) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(queue.get(0));
            message.setQueueId(Integer.parseInt(queue.get(1)));
            message.setBody(new byte[] {'p'});
            message.setKeys("put-by-the-judge");
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new InetSocketAddress("127.0.0.1", 53422));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult result = store.putMessage(message);
            AppendMessageResult where = result.getAppendMessageResult();
            rows.add(List.of("" + result.getPutMessageStatus(), where == null ? -1 : where.getWroteOffset(),
                where == null ? -1 : where.getLogicsOffset()));
        }
        new OpenStore.Progress(store).catchesUp(20);
        return rows;
    }

    static int pull(Request request) {
        return request.number("pull", PULL);
    }

    private Serving() {
    }
}
