package harness;

import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFileQueue;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.index.IndexHeader;

/**
 * Loads and starts a store, lets it dispatch, and says what it looks like then.
 *
 * <p>The answer has the names of truth.json (tests/data/README.md). It is changed by the start, so give a copy. Of queues
 * in RocksDB only those are listed that are asked for: {@code queues} has the number of queues by topic. With
 * {@code serve} consumers and producers come to it as {@link Serving} says. With {@code end} it has been shut down when
 * the answer comes; with {@code halt} the process ends then, and the store is left as by a kill.
 */
final class OpenStore {
    private static final int CONSTRUCT_SECONDS = 20;
    private static final int LOAD_SECONDS = 60;
    private static final int START_SECONDS = 40;
    private static final int SERVE_SECONDS = 60;
    private static final int SHUTDOWN_SECONDS = 60;
    private static final long NO_PROGRESS_MILLIS = 4_000;

    static Map<String, Object> open(Request request) throws Exception {
        Path root = request.root();
        Properties settings = request.settings();
        Log log = new Log();
        Map<String, Object> answer = new LinkedHashMap<>();
        Map<String, Long> before = files(root);
        answer.put("abort_before", before.containsKey("abort"));
        answer.put("files_before", rows(before));
        AtomicReference<Object> timer = new AtomicReference<>();
        DefaultMessageStore store = Threads.step(answer, "construct", CONSTRUCT_SECONDS, () -> false, () -> {
            DefaultMessageStore made = Stores.create(root, settings);
            timer.set(Stores.timer(made, root));
            return made;
        });
        boolean loaded = store != null && Boolean.TRUE.equals(Threads.step(answer, "load", LOAD_SECONDS, () -> false,
            () -> store.load() && (timer.get() == null || (Boolean) Private.call(timer.get(), "load"))));
        answer.put("load_ok", loaded);
        answer.put("files_after_load", changes(before, files(root)));
        if (loaded) {
            answer.put("after_load", state(store));
            answer.put("index_after_load", indexFiles(store));
            start(store, answer);
            answer.put("files_after_dispatch", changes(before, files(root)));
            for (var topic : request.numbers("queues", Map.of()).entrySet()) {
                for (int number = 0; number < topic.getValue(); number++) {
                    store.findConsumeQueue(topic.getKey(), number); // one in RocksDB is not in the table before
                }
            }
            answer.put("after_dispatch", state(store));
            answer.put("index_after_dispatch", indexFiles(store));
            if (request.flag("serve") && !answer.containsKey("stuck")) {
                serve(store, request, answer);
            }
        }
        answer.put("deaths", Threads.deaths());
        answer.put("log", log.lines(root));
        if (request.flag("halt")) {
            answer.put("halts", true);
        } else if (request.flag("end") && store != null && !answer.containsKey("stuck")) {
            Threads.step(answer, "shutdown", SHUTDOWN_SECONDS, () -> false, () -> {
                store.shutdown();
                return null;
            });
        } else if (store != null && !answer.containsKey("stuck")) {
            Thread end = new Thread(store::shutdown, "shutdown");
            end.setDaemon(true);
            end.start();
        }
        return answer;
    }

    /** Let consumers drain queues and go on at `consumers`, ask for the `keys`, `put` messages, as {@link Serving} says. */
    private static void serve(DefaultMessageStore store, Request request, Map<String, Object> answer) throws Exception {
        answer.put("drained", Threads.step(answer, "drain", SERVE_SECONDS, () -> false,
            () -> Serving.drained(store, Serving.pull(request), request.flag("client"))));
        answer.put("consumed", Threads.step(answer, "consume", SERVE_SECONDS, () -> false,
            () -> Serving.consumed(store, request.rows("consumers"), Serving.pull(request))));
        answer.put("found", Threads.step(answer, "find", SERVE_SECONDS, () -> false,
            () -> Serving.found(store, request.rows("keys"))));
        answer.put("put", Threads.step(answer, "puts", SERVE_SECONDS, () -> false,
            () -> Serving.put(store, request.rows("put"))));
        answer.put("drained_again", Threads.step(answer, "drain_again", SERVE_SECONDS, () -> false,
            () -> request.rows("put").isEmpty() ? List.of() : Serving.drained(store, Serving.pull(request), request.flag("client"))));
    }

    /** Start, and wait for the dispatch: it has ended where nothing is behind, and hangs where nothing moves any more. */
    static void start(DefaultMessageStore store, Map<String, Object> answer) throws Exception {
        Stores.listenOnLoopback(store);
        Progress progress = new Progress(store);
        Threads.step(answer, "start", START_SECONDS, progress::ended, () -> {
            store.start();
            return null;
        });
        boolean caughtUp = !answer.containsKey("stuck") && progress.catchesUp(START_SECONDS);
        answer.put("dispatch", new LinkedHashMap<>(Map.of("caught_up", caughtUp, "behind_bytes", store.dispatchBehindBytes())));
    }

    static final class Progress {
        private final DefaultMessageStore store;
        private long behind = Long.MIN_VALUE;
        private long since = System.currentTimeMillis();

        Progress(DefaultMessageStore store) {
            this.store = store;
        }

        /** Say whether something is behind and has not moved for a while. */
        boolean ended() {
            long now = store.dispatchBehindBytes();
            if (now != behind || now <= 0) {
                behind = now;
                since = System.currentTimeMillis();
            }
            return System.currentTimeMillis() - since > NO_PROGRESS_MILLIS;
        }

        boolean catchesUp(int seconds) throws InterruptedException {
            long end = System.currentTimeMillis() + seconds * 1000L;
            for (int times = 0; System.currentTimeMillis() < end && !ended(); Thread.sleep(15)) {
                times = store.dispatchBehindBytes() <= 0 ? times + 1 : 0;
                if (times == 4) {
                    return true;
                }
            }
            return false;
        }
    }

    static Map<String, Object> state(DefaultMessageStore store) throws Exception {
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("min_phy", store.getMinPhyOffset());
        state.put("max_phy", store.getMaxPhyOffset());
        state.put("reput_from", Private.call(Private.get(store, "reputMessageService"), "getReputFromOffset"));
        List<Object> segments = new ArrayList<>();
        for (var file : ((MappedFileQueue) Private.get(store.getCommitLog(), "mappedFileQueue")).getMappedFiles()) {
            segments.add(List.of(file.getFileFromOffset(), file.getWrotePosition(), file.getFileSize()));
        }
        state.put("commitlog_files", segments);
        state.put("queues", queues(store));
        return state;
    }

    private static List<Object> queues(DefaultMessageStore store) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (var topic : new TreeMap<>(store.getConsumeQueueTable()).entrySet()) {
            for (var entry : new TreeMap<>(topic.getValue()).entrySet()) {
                var queue = entry.getValue();
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("topic", topic.getKey());
                row.put("queue_id", entry.getKey());
                row.put("type", queue.getClass().getSimpleName());
                row.put("min_offset", queue.getMinOffsetInQueue());
                row.put("max_offset", queue.getMaxOffsetInQueue());
                row.put("max_physic_offset", queue.getMaxPhysicOffset());
                rows.add(row);
            }
        }
        return rows;
    }

    private static List<Object> indexFiles(DefaultMessageStore store) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (Object object : (Collection<?>) Private.get(Private.get(store, "indexService"), "indexFileList")) {
            IndexFile file = (IndexFile) object;
            IndexHeader header = (IndexHeader) Private.get(file, "indexHeader");
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("name", Path.of(file.getFileName()).getFileName().toString());
            row.put("begin_timestamp", header.getBeginTimestamp());
            row.put("end_timestamp", header.getEndTimestamp());
            row.put("begin_phy", header.getBeginPhyOffset());
            row.put("end_phy", header.getEndPhyOffset());
            row.put("hash_slot_count", header.getHashSlotCount());
            row.put("index_count", header.getIndexCount());
            rows.add(row);
        }
        return rows;
    }

    /** Every file below the root with its length, by its name relative to it. */
    private static Map<String, Long> files(Path root) throws IOException {
        Map<String, Long> files = new TreeMap<>();
        Files.walkFileTree(root, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path path, BasicFileAttributes attributes) throws IOException {
                if (Files.isRegularFile(path)) {
                    files.put(root.relativize(path).toString(), Files.size(path));
                }
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFileFailed(Path path, IOException reason) {
                return FileVisitResult.CONTINUE; // RocksDB deletes its own files in the background
            }
        });
        return files;
    }

    private static List<Object> rows(Map<String, Long> files) {
        List<Object> rows = new ArrayList<>();
        files.forEach((name, length) -> rows.add(List.of(name, length)));
        return rows;
    }

    private static Map<String, Object> changes(Map<String, Long> before, Map<String, Long> after) {
        Map<String, Long> added = new TreeMap<>(after);
        added.keySet().removeAll(before.keySet());
        List<String> removed = new ArrayList<>(before.keySet());
        removed.removeAll(after.keySet());
        Map<String, Long> changed = new TreeMap<>(after);
        changed.keySet().retainAll(before.keySet());
        changed.entrySet().removeIf(file -> file.getValue().equals(before.get(file.getKey())));
        Map<String, Object> changes = new LinkedHashMap<>();
        changes.put("added", rows(added));
        changes.put("removed", removed);
        changes.put("changed", rows(changed));
        return changes;
    }

    private OpenStore() {
    }
}
