import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A name server, a broker and clients that write message traces: ./store, and what the clients say of it: ./truth.json.
 *
 * <p>`sent` and `consumed` are what producers were told and consumers answered. `records` are the records of the trace
 * topics as a pull consumer gets them, each with what the client's own decoder makes of its body.
 */
public final class TraceLab {
    private static final String NAMES = "127.0.0.1:22876";
    private static final List<Object> SENT = Collections.synchronizedList(new ArrayList<>());
    private static final List<Object> CONSUMED = Collections.synchronizedList(new ArrayList<>());
    private static final Map<String, Integer> SEEN = new ConcurrentHashMap<>();
    private static BrokerController broker;

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] args) throws Exception {
        startServers(args);
        String[] topics = {"Orders", "Payments", "Steps", "Tx", "Later", "Plain"};
        for (String topic : topics) {
            addTopic(topic, topic.equals("Steps") ? 1 : 2);
        }
        addTopic("audit_trace", 1);
        Thread.sleep(1500);

        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        consumers.add(consumer("g_all", null, "Orders", 4, "success"));
        consumers.add(consumer("g_flaky", null, "Payments", 1, "flaky"));
        consumers.add(consumer("g_audit", "audit_trace", "Payments", 1, "success"));
        consumers.add(consumer("g_untraced", "", "Plain", 1, "success"));
        consumers.add(consumer("g_tx", null, "Tx", 1, "success"));
        consumers.add(consumer("g_later", null, "Later", 1, "success"));
        consumers.add(orderly());
        Thread.sleep(2000);

        DefaultMQProducer traced = producer("PG_traced", null);
        DefaultMQProducer audited = producer("PG_audited", "audit_trace");
        DefaultMQProducer plain = producer("PG_plain", "");
        for (int i = 0; i < 30; i++) {
            Message message = new Message("Orders", ("order " + i).getBytes(StandardCharsets.UTF_8));
            if (i % 3 > 0) {
                message.setTags(i % 3 == 1 ? "TagA" : "\u6807\u7b7e");
            }
            if (i % 4 > 0) {
                message.setKeys(i % 4 == 1 ? "K" + i : "K" + i + " \u952e" + i + " " + "long".repeat(12) + i);
            }
            send(traced, message);
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            batch.add(new Message("Orders", "TagB", "B" + i, ("of a batch " + i).getBytes(StandardCharsets.UTF_8)));
        }
        sent("PG_traced", batch.get(0), traced.send(batch));
        for (int i = 0; i < 6; i++) {
            send(traced, new Message("Payments", "paid", "P" + i, ("payment " + i).getBytes(StandardCharsets.UTF_8)));
        }
        for (int i = 0; i < 4; i++) {
            send(audited, new Message("Payments", "audit", "A" + i, ("audited " + i).getBytes(StandardCharsets.UTF_8)));
            send(plain, new Message("Plain", "x", "U" + i, ("untraced " + i).getBytes(StandardCharsets.UTF_8)));
            send(traced, new Message("Plain", "x", "T" + i, ("only sent " + i).getBytes(StandardCharsets.UTF_8)));
            send(traced, new Message("Steps", "s", "S" + i, ("step " + i).getBytes(StandardCharsets.UTF_8)));
        }
        send(traced, new Message("Orders", "big", "Z1", "compress me ".repeat(600).getBytes(StandardCharsets.UTF_8)));
        Message delayed = new Message("Later", "d", "D1", "later".getBytes(StandardCharsets.UTF_8));
        delayed.setDelayTimeLevel(1);
        send(traced, delayed);
        transactions();
        recall(traced);
        Thread.sleep(16_000); // retries, checks, flushes of the dispatchers (5 s)

        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        traced.shutdown();
        audited.shutdown();
        plain.shutdown();
        Thread.sleep(2500);
        Map<String, Object> truth = new LinkedHashMap<>();
        truth.put("version", MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
        truth.put("sent", SENT);
        truth.put("consumed", CONSUMED);
        List<Object> records = new ArrayList<>();
        for (String topic : new String[] {"RMQ_SYS_TRACE_TOPIC", "audit_trace"}) {
            records.addAll(pulled(topic));
        }
        truth.put("records", records);
        try (PrintStream out = new PrintStream("truth.json", "UTF-8")) {
            out.println(TraceCodec.json(truth));
        }
        broker.shutdown();
    }

    private static void startServers(String[] args) throws Exception {
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
        System.setProperty("com.rocketmq.recall.default.trace.enable", "true");
        NamesrvConfig names = new NamesrvConfig();
        names.setRocketmqHome("home");
        names.setKvConfigPath("home/kvConfig.json");
        names.setConfigStorePath("home/namesrv.properties");
        NettyServerConfig netty = new NettyServerConfig();
        netty.setListenPort(22876);
        NamesrvController controller = new NamesrvController(names, netty);
        controller.initialize();
        controller.start();
        BrokerConfig config = new BrokerConfig();
        config.setNamesrvAddr(NAMES);
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setBrokerName("broker-a");
        config.setRocketmqHome("home");
        config.setTraceTopicEnable(true);
        config.setTransactionCheckInterval(3000);
        config.setTransactionTimeOut(1500);
        Properties more = new Properties();
        for (String arg : args) {
            more.put(arg.split("=")[0], arg.split("=")[1]);
        }
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir("store");
        store.setStorePathCommitLog("store/commitlog");
        store.setHaListenPort(22912);
        store.setMappedFileSizeCommitLog(131072);
        store.setMappedFileSizeConsumeQueue(6000);
        store.setMaxHashSlotNum(100);
        store.setMaxIndexNum(400);
        MixAll.properties2Object(more, config);
        MixAll.properties2Object(more, store);
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(22911);
        broker = new BrokerController(config, listen, new NettyClientConfig(), store);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not start");
        }
        broker.start();
        Thread.sleep(Arrays.asList(args).contains("enableDLegerCommitLog=true") ? 8000 : 2500);
    }

    private static void addTopic(String name, int queues) throws Exception {
        TopicConfig topic = new TopicConfig(name, queues, queues, 6);
        broker.getTopicConfigManager().updateTopicConfig(topic);
        for (Method method : broker.getClass().getMethods()) { // 4.x takes one topic, 5.x a list or one
            if (method.getName().equals("registerIncrementBrokerData")
                    && method.getParameterTypes()[0] == TopicConfig.class) {
                method.invoke(broker, topic, broker.getTopicConfigManager().getDataVersion());
                return;
            }
        }
        broker.registerBrokerAll(false, true, true);
    }

    // --- producers ------------------------------------------------------------------------------

    private static DefaultMQProducer producer(String group, String traceTopic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, (RPCHook) null, !"".equals(traceTopic), traceTopic);
        producer.setNamesrvAddr(NAMES);
        producer.setVipChannelEnabled(false);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName(group);
        producer.setSendMsgTimeout(6000);
        producer.start();
        return producer;
    }

    private static void send(DefaultMQProducer producer, Message message) throws Exception {
        sent(producer.getProducerGroup(), message, producer.send(message));
    }

    private static void sent(String group, Message message, SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("group", group);
        row.put("topic", message.getTopic());
        row.put("keys", message.getKeys());
        row.put("msg_id", result.getMsgId());
        row.put("offset_msg_id", result.getOffsetMsgId());
        row.put("status", result.getSendStatus().name());
        SENT.add(row);
    }

    private static void transactions() throws Exception {
        TransactionMQProducer producer = null;
        for (java.lang.reflect.Constructor<?> one : TransactionMQProducer.class.getConstructors()) {
            Class<?>[] types = one.getParameterTypes();
            if (types.length == 5 && types[2] == RPCHook.class && types[0] == String.class) { // namespace first
                producer = (TransactionMQProducer) one.newInstance(null, "PG_tx", null, true, null);
            }
        }
        producer.setNamesrvAddr(NAMES);
        producer.setVipChannelEnabled(false);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("PG_tx");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object asked) {
                return (LocalTransactionState) asked;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState state : LocalTransactionState.values()) {
            Message message = new Message("Tx", "tx", "X" + state.ordinal(), state.name().getBytes("UTF-8"));
            sent("PG_tx", message, producer.sendMessageInTransaction(message, state));
        }
        Thread.sleep(12_000); // the unknown one is checked
        producer.shutdown();
    }

    /** From 5.3.2 on a timer message can be taken back. */
    private static void recall(DefaultMQProducer producer) throws Exception {
        try {
            Method recall = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class);
            Message message = new Message("Later", "r", "R1", "recalled".getBytes(StandardCharsets.UTF_8));
            Message.class.getMethod("setDelayTimeSec", long.class).invoke(message, 600L);
            SendResult result = producer.send(message);
            sent("PG_traced", message, result);
            recall.invoke(producer, "Later", SendResult.class.getMethod("getRecallHandle").invoke(result));
        } catch (NoSuchMethodException none) {
            System.out.println("no recall");
        }
    }

    // --- consumers ------------------------------------------------------------------------------

    private static DefaultMQPushConsumer consumer(
            String group, String traceTopic, String topic, int most, String how) throws Exception {
        DefaultMQPushConsumer consumer = consumer(group, traceTopic, topic);
        consumer.setConsumeMessageBatchMaxSize(most);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            String outcome = "success";
            MessageExt first = messages.get(0);
            if (how.equals("flaky") && SEEN.merge(group + first.getMsgId(), 1, Integer::sum) == 1) {
                switch (first.getKeys()) {
                    case "P0": outcome = "later"; break;
                    case "P1": outcome = "exception"; break;
                    case "P2": outcome = "null"; break;
                    case "P3": context.setDelayLevelWhenNextConsume(-1); outcome = "later"; break; // to the dead letters
                    default:
                }
            }
            consumed(group, messages, outcome);
            if (outcome.equals("exception")) {
                throw new IllegalStateException("as asked");
            }
            if (outcome.equals("null")) {
                return null;
            }
            return outcome.equals("success")
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        return consumer;
    }

    private static DefaultMQPushConsumer orderly() throws Exception {
        DefaultMQPushConsumer consumer = consumer("g_steps", null, "Steps");
        consumer.setSuspendCurrentQueueTimeMillis(500);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            boolean fails = SEEN.merge("g_steps" + messages.get(0).getMsgId(), 1, Integer::sum) == 1
                && "S1".equals(messages.get(0).getKeys());
            consumed("g_steps", messages, fails ? "suspend" : "success");
            return fails ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static DefaultMQPushConsumer consumer(String group, String traceTopic, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, !"".equals(traceTopic), traceTopic);
        consumer.setNamesrvAddr(NAMES);
        consumer.setVipChannelEnabled(false);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static void consumed(String group, Collection<MessageExt> messages, String outcome) {
        for (MessageExt message : messages) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("group", group);
            row.put("topic", message.getTopic());
            row.put("msg_id", message.getMsgId());
            row.put("reconsume_times", message.getReconsumeTimes());
            row.put("outcome", outcome);
            row.put("at", System.currentTimeMillis());
            CONSUMED.add(row);
        }
    }

    // --- the truth ------------------------------------------------------------------------------

    private static List<Object> pulled(String topic) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("g_truth_" + topic);
        consumer.setNamesrvAddr(NAMES);
        consumer.setVipChannelEnabled(false);
        consumer.setInstanceName("truth" + topic);
        consumer.start();
        List<Object> rows = new ArrayList<>();
        for (MessageQueue queue : new java.util.TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
            long at = 0;
            while (true) {
                PullResult result = consumer.pull(queue, "*", at, 32);
                if (result.getPullStatus() != PullStatus.FOUND) {
                    break;
                }
                for (MessageExt message : result.getMsgFoundList()) {
                    Map<String, Object> row = new LinkedHashMap<>();
                    row.put("topic", topic);
                    row.put("queue_id", message.getQueueId());
                    row.put("queue_offset", message.getQueueOffset());
                    row.put("physical_offset", message.getCommitLogOffset());
                    row.put("keys", message.getKeys());
                    row.put("compressed", (message.getSysFlag() & 1) == 1);
                    row.put("born_host", message.getBornHostString());
                    row.put("store_timestamp", message.getStoreTimestamp());
                    TraceCodec.decode(row, new String(message.getBody(), StandardCharsets.UTF_8));
                    rows.add(row);
                }
                at = result.getNextBeginOffset();
            }
        }
        consumer.shutdown();
        return rows;
    }
}
