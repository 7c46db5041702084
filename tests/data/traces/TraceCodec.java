import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.message.MessageType;

/**
 * What the trace encoder and decoder of one release do: {@code TraceCodec RELEASE OUT.jsonl}.
 *
 * <p>A line has a body and what the release's own decoder makes of it: contexts, or the error that it throws. Bodies are
 * those of the release's own encoder, whole and damaged.
 */
public final class TraceCodec {
    private static final String[] OF_CONTEXT =
        {"TraceType", "TimeStamp", "RegionId", "GroupName", "CostTime", "isSuccess", "RequestId", "ContextCode"};
    private static final String[] OF_BEAN = {
        "Topic", "MsgId", "OffsetMsgId", "Tags", "Keys", "StoreHost", "ClientHost", "RetryTimes", "BodyLength",
        "MsgType", "TransactionState", "TransactionId", "isFromTransactionCheck"};
    private static Random random;

    public static void main(String[] args) throws Exception {
        random = new Random(args[0].hashCode());
        try (PrintStream out = new PrintStream(args[1], "UTF-8")) {
            for (int i = 0; i < 24; i++) {
                StringBuilder body = new StringBuilder();
                for (int n = 1 + random.nextInt(3); n > 0; n--) {
                    body.append(TraceDataEncoder.encoderFromContextBean(context()).getTransData());
                }
                write(out, args[0], body.toString());
                write(out, args[0], damaged(body.toString()));
            }
        }
    }

    private static void write(PrintStream out, String release, String body) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("release", release);
        row.put("body", body);
        decode(row, body);
        out.println(json(row));
    }

    /** Add what the decoder makes of a body: `contexts`, or `error`. */
    static void decode(Map<String, Object> row, String body) {
        try {
            List<Object> contexts = new ArrayList<>();
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(body)) {
                Map<String, Object> found = new LinkedHashMap<>();
                fields(found, context, OF_CONTEXT);
                for (TraceBean bean : context.getTraceBeans()) {
                    fields(found, bean, OF_BEAN);
                }
                contexts.add(found);
            }
            row.put("contexts", contexts);
        } catch (RuntimeException error) {
            row.put("error", error.getClass().getSimpleName());
        }
    }

    private static void fields(Map<String, Object> found, Object of, String[] names) {
        for (String name : names) {
            try {
                Object value = of.getClass().getMethod(name.startsWith("is") ? name : "get" + name).invoke(of);
                found.put(name, value instanceof Enum ? ((Enum<?>) value).name() : value);
            } catch (ReflectiveOperationException older) {
                continue; // a release without the field
            }
        }
    }

    private static TraceContext context() throws Exception {
        TraceContext context = new TraceContext();
        TraceType[] types = TraceType.values();
        TraceType type = types[random.nextInt(types.length)];
        context.setTraceType(type);
        context.setTimeStamp(1_750_000_000_000L + random.nextInt(1 << 30));
        context.setRegionId(pick("DefaultRegion", "cn-hangzhou", null));
        context.setGroupName(pick("PG_1", "g%ns", "\u7ec4"));
        context.setCostTime(random.nextInt(5000));
        context.setSuccess(random.nextBoolean());
        context.setContextCode(random.nextInt(5));
        set(context, "setAccessChannel", accessChannel());
        List<TraceBean> beans = new ArrayList<>();
        for (int n = type.name().startsWith("Sub") ? 1 + random.nextInt(3) : 1; n > 0; n--) {
            TraceBean bean = new TraceBean();
            bean.setTopic(pick("Orders", "Payments"));
            bean.setMsgId(pick("7F000001000055970000000000038270", "7F01,7F02,7F03", null));
            bean.setOffsetMsgId(pick("7F0000010000597F0000000000012345", "", null));
            bean.setTags(pick("TagA", "\u6807", null));
            bean.setKeys(pick("K1", "K1 K2", null));
            bean.setStoreHost(pick("127.0.0.1:10911", "[::1]:10911"));
            bean.setClientHost("127.0.0.1@4711");
            bean.setRetryTimes(random.nextInt(17));
            bean.setBodyLength(random.nextInt(1 << 20));
            bean.setMsgType(MessageType.values()[random.nextInt(MessageType.values().length)]);
            set(bean, "setTransactionId", pick("7F000001000055970000000000038270", null));
            set(bean, "setFromTransactionCheck", random.nextBoolean());
            for (Method method : TraceBean.class.getMethods()) {
                if (method.getName().equals("setTransactionState")) {
                    Object[] states = method.getParameterTypes()[0].getEnumConstants();
                    method.invoke(bean, states[random.nextInt(states.length)]);
                }
            }
            beans.add(bean);
        }
        context.setTraceBeans(beans);
        return context;
    }

    /** Mostly of a broker of one's own; sometimes of the cloud, whose traces end earlier. */
    private static Object accessChannel() throws Exception {
        try {
            Class<?> channel = Class.forName("org.apache.rocketmq.client.AccessChannel");
            return channel.getEnumConstants()[random.nextInt(4) / 3];
        } catch (ClassNotFoundException older) {
            return null;
        }
    }

    private static void set(Object on, String name, Object value) throws Exception {
        for (Method method : on.getClass().getMethods()) {
            if (method.getName().equals(name)) {
                method.invoke(on, value);
            }
        }
    }

    private static String pick(String... values) {
        return values[random.nextInt(values.length)];
    }

    private static String damaged(String body) {
        int at = random.nextInt(body.length());
        switch (random.nextInt(4)) {
            case 0: return body.substring(0, at);
            case 1: return body.substring(0, at) + body.substring(at + 1);
            case 2: return body.substring(0, at) + pick("\u0001", "\u0002", "x", "\u0000") + body.substring(at + 1);
            default: {
                List<String> fields = new ArrayList<>(Arrays.asList(body.split("\u0001")));
                fields.remove(random.nextInt(fields.size()));
                return String.join("\u0001", fields);
            }
        }
    }

    /** Return plain values as JSON. */
    static String json(Object value) {
        StringBuilder text = new StringBuilder();
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                text.append(text.length() == 0 ? "" : ",").append(json(entry.getKey())).append(':');
                text.append(json(entry.getValue()));
            }
            return "{" + text + "}";
        }
        if (value instanceof Iterable) {
            for (Object one : (Iterable<?>) value) {
                text.append(text.length() == 0 ? "" : ",").append(json(one));
            }
            return "[" + text + "]";
        }
        for (char one : String.valueOf(value).toCharArray()) {
            text.append(one == '"' || one == '\\' ? "\\" + one
                : one < 32 || one > 126 ? String.format("\\u%04x", (int) one) : String.valueOf(one));
        }
        return "\"" + text + "\"";
    }
}
