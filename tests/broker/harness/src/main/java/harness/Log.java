package harness;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What RocketMQ has logged since this object was made. */
final class Log {
    private static final int MOST_LINES = 60;
    private static final List<String> LEVELS = List.of("WARN", "ERROR");
    private static final List<String> WORDS = List.of("recover physics", "recover from", "truncat", "delete", "load over", "SetReputOffset");
    private static final int MOST_ALIKE = 3;
    private static final int ALIKE = 40; // characters
    private final Path file = Path.of(System.getProperty("harness.log"));
    private final long start = Files.exists(file) ? Files.size(file) : 0;

    Log() throws IOException {
    }

    /** Warnings, errors and what recovery says, with the folder of the store as ROOT. */
    List<String> lines(Path root) throws IOException {
        if (!Files.exists(file)) {
            return List.of();
        }
        byte[] bytes = Files.readAllBytes(file);
        String text = new String(bytes, (int) start, bytes.length - (int) start, StandardCharsets.UTF_8);
        Map<String, Integer> seen = new HashMap<>();
        return text.lines().filter(Log::matters).map(line -> line.replace(root.toString(), "ROOT"))
            .filter(line -> seen.merge(line.substring(0, Math.min(ALIKE, line.length())), 1, Integer::sum) <= MOST_ALIKE)
            .limit(MOST_LINES).toList();
    }

    private static boolean matters(String line) {
        return LEVELS.stream().anyMatch(line::startsWith) || WORDS.stream().anyMatch(line::contains);
    }
}
