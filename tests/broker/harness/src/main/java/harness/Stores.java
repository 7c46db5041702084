package harness;

import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Makes the store object as BrokerController does, of whatever release is on the class path. */
final class Stores {
    private static BrokerStatsManager statistics;

    static DefaultMessageStore create(Path root, Properties settings) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("broker-a");
        broker.setBrokerIP1("127.0.0.1");
        MixAll.properties2Object(settings, config);
        MixAll.properties2Object(settings, broker);
        config.setStorePathRootDir(root.toString());
        if (settings.getProperty("storePathCommitLog") == null) {
            config.setStorePathCommitLog(root.resolve("commitlog").toString());
        }
        config.setHaListenPort(freePort());
        DefaultMessageStore store = construct(typeOfStore(settings), config, broker, topics(root));
        silenceDelays(store);
        return store;
    }

    /**
     * Make the timer as BrokerController#initializeMessageStore does, behind the store; null where there is none.
     *
     * <p>Only of a store that has something of it: it takes 37 MiB of memory outside of the heap, whatever is in it.
     */
    static Object timer(DefaultMessageStore store, Path root) throws Exception {
        MessageStoreConfig config = store.getMessageStoreConfig();
        boolean has = Files.exists(root.resolve("timerwheel")) || Files.exists(root.resolve("timerlog"))
            || Files.exists(root.resolve("config").resolve("timercheck")) || Files.isRegularFile(root.resolve("config"));
        if (!has || !Private.has(config, "timerWheelEnable") || !Boolean.TRUE.equals(Private.get(config, "timerWheelEnable"))) {
            return null;
        }
        Object checkpoint = make("TimerCheckpoint", root.resolve("config").resolve("timercheck").toString());
        Object metrics = make("TimerMetrics", root.resolve("config").resolve("timermetrics").toString());
        return make("TimerMessageStore", store, config, checkpoint, metrics, statistics());
    }

    private static Object make(String name, Object... arguments) throws Exception {
        for (Constructor<?> constructor : Class.forName("org.apache.rocketmq.store.timer." + name).getConstructors()) {
            if (constructor.getParameterCount() == arguments.length) {
                try {
                    return constructor.newInstance(arguments);
                } catch (InvocationTargetException reason) {
                    throw reason.getCause() instanceof Exception cause ? cause : reason;
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    /** Call between load() and start(): from 5.0 on the service is made somewhere before, and its socket in start(). */
    static void listenOnLoopback(DefaultMessageStore store) throws Exception {
        Object service = Private.has(store, "haService") ? Private.get(store, "haService") : null;
        if (service == null || service.getClass().getSimpleName().equals("AutoSwitchHAService")) {
            return; // controller mode asks for that service by its class: no proxy can stand for it
        }
        int port = store.getMessageStoreConfig().getHaListenPort();
        Class<?>[] types = service.getClass().getInterfaces();
        if (types.length == 0) {
            bind(service, port);
            return;
        }
        Private.set(store, "haService", Proxy.newProxyInstance(Stores.class.getClassLoader(), types, (proxy, method, arguments) -> {
            if (method.getName().equals("start")) {
                bind(service, port);
            }
            return Private.call(service, method.getName(), arguments == null ? new Object[0] : arguments);
        }));
    }

    private static void bind(Object service, int port) throws ReflectiveOperationException {
        Object acceptor = Private.get(service, "acceptSocketService");
        Private.set(acceptor, "socketAddressListen", new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    private static Class<?> typeOfStore(Properties settings) throws ClassNotFoundException {
        boolean rocks = settings.getProperty("storeType", "default").equals("defaultRocksDB");
        return rocks ? Class.forName("org.apache.rocketmq.store.RocksDBMessageStore") : DefaultMessageStore.class;
    }

    private static DefaultMessageStore construct(Class<?> type, MessageStoreConfig config, BrokerConfig broker, Map<?, ?> topics)
            throws ReflectiveOperationException {
        MessageArrivingListener listener = (MessageArrivingListener) Proxy.newProxyInstance(Stores.class.getClassLoader(),
            new Class<?>[] {MessageArrivingListener.class}, (proxy, method, arguments) -> null);
        Constructor<?> constructor = type.getConstructors()[0];
        // From 5.0 on the store asks the topics for the type of a queue.
        return (DefaultMessageStore) (constructor.getParameterCount() == 4
            ? constructor.newInstance(config, statistics(), listener, broker)
            : constructor.newInstance(config, statistics(), listener, broker, topics));
    }

    /** One for all stores: it starts threads that nothing ends. */
    private static BrokerStatsManager statistics() throws ReflectiveOperationException {
        if (statistics == null) {
            for (Constructor<?> constructor : BrokerStatsManager.class.getConstructors()) {
                Class<?>[] types = constructor.getParameterTypes();
                if (types[0] == String.class) {
                    statistics = (BrokerStatsManager) (types.length == 1 ? constructor.newInstance("DefaultCluster")
                        : constructor.newInstance("DefaultCluster", false));
                }
            }
        }
        return statistics;
    }

    /** The broker's own reading of config/topics.json; a broken one belongs to the broker's configuration, not to the store. */
    private static Map<?, ?> topics(Path root) throws Exception {
        Path file = root.resolve("config").resolve("topics.json");
        Class<?> type;
        try {
            type = Class.forName("org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper");
        } catch (ClassNotFoundException reason) {
            return new ConcurrentHashMap<>();
        }
        if (!Files.isRegularFile(file)) {
            return new ConcurrentHashMap<>();
        }
        return (Map<?, ?>) Private.call(RemotingSerializable.fromJson(Files.readString(file), type), "getTopicConfigTable");
    }

    /** Write config/topics.json, as the broker keeps topics with batch queues, with so many queues each. */
    static void addBatchTopics(Path root, Map<String, Integer> queues) throws IOException {
        if (queues.isEmpty()) {
            return;
        }
        Map<String, Object> topics = new LinkedHashMap<>();
        queues.forEach((name, count) -> topics.put(name, Map.of("topicName", name, "readQueueNums", count, "writeQueueNums",
            count, "perm", 6, "attributes", Map.of("queue.type", "BatchCQ"))));
        Files.createDirectories(root.resolve("config"));
        Files.writeString(root.resolve("config").resolve("topics.json"),
            RemotingSerializable.toJson(Map.of("topicConfigTable", topics), true));
    }

    /** Before 5.0 the store itself delivers delayed messages, a second after its start. Keep it quiet: answers repeat. */
    private static void silenceDelays(DefaultMessageStore store) throws ReflectiveOperationException {
        if (!Private.has(store, "scheduleMessageService")) {
            return;
        }
        Object service = Private.get(store, "scheduleMessageService");
        if (Private.has(service, "started")) {
            ((AtomicBoolean) Private.get(service, "started")).set(true);
        } else {
            Private.set(service, "timer", new SilentTimer());
        }
    }

    private static final class SilentTimer extends Timer {
        SilentTimer() {
            super(true);
        }

        @Override
        public void schedule(TimerTask task, long delay) {
        }

        @Override
        public void schedule(TimerTask task, Date time) {
        }

        @Override
        public void scheduleAtFixedRate(TimerTask task, long delay, long period) {
        }
    }

    private Stores() {
    }
}
