package harness;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Starts real stores. One request a line on standard input, one answer a line on standard output, both JSON.
 *
 * <p>{"command": "open", "root": FOLDER, "settings": {NAME: VALUE}} answers as {@link OpenStore} says;
 * {"command": "write", ..., "spec": {...}} as {@link WriteStore} says. Every request takes a new store object. A
 * process that answered "stuck" has to be killed: a thread of the store runs on.
 */
public final class Harness {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // RocketMQ prints to standard output now and then.
        System.setOut(System.err);
        Thread.setDefaultUncaughtExceptionHandler(Threads::died);
        int status = 0;
        try {
            serve(answers);
        } catch (Throwable reason) {
            reason.printStackTrace();
            status = 1;
        }
        // Threads of stores are still there.
        Runtime.getRuntime().halt(status);
    }

    private static void serve(PrintStream answers) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Request request = new Request(RemotingSerializable.fromJson(line, LinkedHashMap.class));
            Threads.forget();
            Map<String, Object> answer = request.command().equals("write") ? WriteStore.write(request) : OpenStore.open(request);
            answers.println(RemotingSerializable.toJson(answer, false));
            if (Boolean.TRUE.equals(answer.get("halts"))) {
                return;
            }
        }
    }

    private Harness() {
    }
}
