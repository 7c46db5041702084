package harness;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.message.*; // MessageExtBrokerInner lives here from 5.0 on
import org.apache.rocketmq.store.*;

/**
 * Puts messages into a store, new or old, and ends it.
 *
 * <p>The specification, with its defaults:
 * <pre>
 * count          100          puts; a batch is one
 * seed           1            of the messages: same seed, same messages but for times
 * topics         {"TopicA": 4, "orders": 2}    queues by topic
 * batch_topics   {}           the same of topics with batch queues (from 5.0 on); written to config/topics.json
 * kinds          {"normal": 80, "batch": 10, "delay": 5, "zlib": 5}    weights of {@link Messages}' kinds
 * body_min, body_max   1, 600
 * pause_every, pause_millis   0, 0   a pause after so many puts: spreads the store timestamps
 * stop_dispatch  0            the dispatcher ends this many puts before the last
 * settle_millis  1300         between the last put and the end: flushes happen
 * end            "clean"      shutdown, or "halt": the process ends and nothing is written any more
 * </pre>
 * Answers {start, load_ok, records: [[physical offset, size, kind, topic, queue id, queue offset]], refused: [status],
 * min_phy, max_phy}.
 */
final class WriteStore {
    private static final int DISPATCH_SECONDS = 30;
    private static final int SHUTDOWN_SECONDS = 60;

    static Map<String, Object> write(Request request) throws Exception {
        Request spec = request.part("spec");
        Map<String, Object> answer = new LinkedHashMap<>();
        Stores.addBatchTopics(request.root(), spec.numbers("batch_topics", Map.of()));
        DefaultMessageStore store = Stores.create(request.root(), request.settings());
        boolean loaded = Boolean.TRUE.equals(Threads.step(answer, "load", DISPATCH_SECONDS, () -> false, store::load));
        answer.put("load_ok", loaded);
        if (loaded) {
            OpenStore.start(store, answer);
            put(store, spec, answer);
            Thread.sleep(spec.number("settle_millis", 1300));
            answer.put("min_phy", store.getMinPhyOffset());
            answer.put("max_phy", store.getMaxPhyOffset());
        }
        answer.put("deaths", Threads.deaths());
        if (spec.text("end", "clean").equals("halt")) {
            answer.put("halts", true);
        } else {
            Threads.step(answer, "shutdown", SHUTDOWN_SECONDS, () -> false, () -> {
                store.shutdown();
                return null;
            });
        }
        return answer;
    }

    private static void put(DefaultMessageStore store, Request spec, Map<String, Object> answer) throws Exception {
        int count = spec.number("count", 100);
        int pauseEvery = spec.number("pause_every", 0);
        int last = count - spec.number("stop_dispatch", 0);
        Messages messages = new Messages(spec, new Random(spec.number("seed", 1)));
        List<Object> records = new ArrayList<>();
        List<String> refused = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            if (i == last) {
                stopDispatch(store);
            }
            if (pauseEvery > 0 && i > 0 && i % pauseEvery == 0) {
                Thread.sleep(spec.number("pause_millis", 0));
            }
            Messages.Made made = messages.next(i);
            PutMessageResult result = made.kind().equals("batch")
                ? store.putMessages((MessageExtBatch) made.message()) : store.putMessage((MessageExtBrokerInner) made.message());
            AppendMessageResult where = result.getAppendMessageResult();
            if (where == null || !result.isOk()) {
                refused.add("" + result.getPutMessageStatus());
            }
            if (where != null) {
                records.add(List.of(where.getWroteOffset(), where.getWroteBytes(), made.kind(), made.message().getTopic(),
                    made.message().getQueueId(), where.getLogicsOffset()));
            }
        }
        if (last == count) {
            new OpenStore.Progress(store).catchesUp(DISPATCH_SECONDS);
        }
        answer.put("records", records);
        answer.put("refused", refused);
    }

    private static void stopDispatch(DefaultMessageStore store) throws Exception {
        new OpenStore.Progress(store).catchesUp(DISPATCH_SECONDS);
        ((ServiceThread) Private.get(store, "reputMessageService")).shutdown();
    }

    private WriteStore() {
    }
}
