package harness;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** A request, and the part of it that describes what to write. */
record Request(Map<?, ?> values) {
    String command() {
        return text("command", "open");
    }

    Path root() {
        return Path.of(text("root", ""));
    }

    /** The settings as broker.conf would give them. */
    Properties settings() {
        Properties settings = new Properties();
        part("settings").values.forEach((name, value) -> settings.setProperty("" + name, "" + value));
        return settings;
    }

    Request part(String name) {
        Object part = values.get(name);
        return new Request(part == null ? Map.of() : (Map<?, ?>) part);
    }

    String text(String name, String otherwise) {
        Object value = values.get(name);
        return value == null ? otherwise : "" + value;
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(text(name, "" + otherwise));
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(text(name, "false"));
    }

    /** A list of lists of texts and numbers, all as texts. */
    List<List<String>> rows(String name) {
        List<List<String>> rows = new ArrayList<>();
        Object given = values.get(name);
        for (Object row : given == null ? List.of() : (List<?>) given) {
            List<String> texts = new ArrayList<>();
            ((List<?>) row).forEach(value -> texts.add("" + value));
            rows.add(texts);
        }
        return rows;
    }

    /** A table of numbers by name, in the order of the request. */
    Map<String, Integer> numbers(String name, Map<String, Integer> otherwise) {
        Request part = part(name);
        if (part.values.isEmpty()) {
            return otherwise;
        }
        Map<String, Integer> numbers = new LinkedHashMap<>();
        part.values.keySet().forEach(key -> numbers.put("" + key, part.number("" + key, 0)));
        return numbers;
    }
}
