package harness;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;

/** Steps that may hang, and threads of the store that died. */
final class Threads {
    private static final List<String> DEATHS = new CopyOnWriteArrayList<>();

    interface Action<T> {
        T run() throws Exception;
    }

    static void died(Thread thread, Throwable reason) {
        DEATHS.add(thread.getName() + ": " + reason);
    }

    static void forget() {
        DEATHS.clear();
    }

    static List<String> deaths() {
        return List.copyOf(DEATHS);
    }

    /**
     * Run one step, at most this long and only while there is hope, and describe its end under `name`: {ok, timed_out,
     * exception: {class, message}}. Errors count as exceptions: they end a broker too. The result is null then.
     */
    static <T> T step(Map<String, Object> answer, String name, int seconds, BooleanSupplier hopeless, Action<T> action)
            throws InterruptedException {
        Outcome<T> outcome = new Outcome<>();
        Thread thread = new Thread(() -> {
            try {
                outcome.result = action.run();
            } catch (Throwable reason) {
                outcome.failure = reason;
            }
        }, "step " + name);
        thread.setDaemon(true);
        thread.start();
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        do {
            thread.join(20);
        } while (thread.isAlive() && System.nanoTime() < end && !hopeless.getAsBoolean());
        boolean hangs = thread.isAlive();
        Map<String, Object> description = new LinkedHashMap<>();
        description.put("ok", !hangs && outcome.failure == null);
        description.put("timed_out", hangs);
        if (outcome.failure != null) {
            description.put("exception", Map.of("class", outcome.failure.getClass().getName(), "message", "" + outcome.failure.getMessage()));
        }
        if (outcome.result instanceof Boolean) {
            description.put("returned", outcome.result);
        }
        answer.put(name, description);
        if (hangs) {
            answer.put("stuck", true);
        }
        return outcome.result;
    }

    private static final class Outcome<T> {
        volatile T result;
        volatile Throwable failure;
    }

    private Threads() {
    }
}
