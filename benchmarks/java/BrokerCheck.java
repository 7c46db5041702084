import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import com.sun.management.OperatingSystemMXBean;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * What a broker does to its commit log when it recovers: each record of each segment goes through
 * CommitLog#checkMessageAndReturnSize, with its body and the CRC of it.
 *
 * Usage: BrokerCheck COMMITLOG SCRATCH, then one line on stdin per pass; each is answered by one line of JSON.
 * COMMITLOG is mapped read-only. SCRATCH is an empty folder: the broker's objects want a store of their own.
 */
public class BrokerCheck {
    private final CommitLog log;
    private final List<MappedByteBuffer> segments = new ArrayList<>();

    private BrokerCheck(Path folder, Path scratch) throws IOException {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(scratch.toString());
        config.setStorePathCommitLog(scratch.resolve("commitlog").toString());
        BrokerConfig broker = new BrokerConfig();
        BrokerStatsManager counts = new BrokerStatsManager("benchmark", false);
        // Made, never started: no thread, no port, no file but a lock in the scratch folder.
        log = new DefaultMessageStore(config, counts, null, broker, new ConcurrentHashMap<>()).getCommitLog();
        List<Path> files;
        try (Stream<Path> found = Files.list(folder)) {
            files = found.sorted().collect(Collectors.toList());
        }
        for (Path file : files) {
            try (FileChannel channel = FileChannel.open(file)) {
                segments.add(channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size()));
            }
        }
    }

    private String pass() {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = system.getProcessCpuTime();
        long start = System.nanoTime();
        long records = 0;
        long octets = 0;
        for (MappedByteBuffer segment : segments) {
            ByteBuffer rest = segment.slice();
            while (rest.hasRemaining()) {
                DispatchRequest found = log.checkMessageAndReturnSize(rest, true, false, true);
                if (!found.isSuccess() || found.getMsgSize() == 0) {
                    break; // no record, or the blank record at the end
                }
                records++;
                octets += found.getMsgSize();
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        double cpuSeconds = (system.getProcessCpuTime() - cpu) / 1e9;
        return String.format(Locale.ROOT, "{\"wall\": %.6f, \"cpu\": %.6f, \"records\": %d, \"octets\": %d}",
            seconds, cpuSeconds, records, octets);
    }

    public static void main(String[] arguments) throws IOException {
        BrokerCheck check = new BrokerCheck(Paths.get(arguments[0]), Paths.get(arguments[1]));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        while (requests.readLine() != null) {
            System.out.println(check.pass());
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
