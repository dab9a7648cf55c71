package nova.flink.plugin;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.dataformat.yaml.YAMLFactory;

/** Reads and writes JSON and YAML. */
final class Documents {
  static final ObjectMapper JSON = new ObjectMapper();
  private static final ObjectMapper YAML = new ObjectMapper(new YAMLFactory());

  private Documents() {}

  /** A file's document: YAML, of which JSON is a part. */
  static ObjectNode read(String setting, String file) {
    try {
      JsonNode found = (file.endsWith(".json") ? JSON : YAML).readTree(new File(file));
      if (found instanceof ObjectNode) {
        return (ObjectNode) found;
      }
      throw new Refusal(setting + ": " + file + ": expected a mapping");
    } catch (JsonProcessingException error) {
      throw new Refusal(
          setting + ": " + file + ": neither JSON nor YAML: " + line(error.getOriginalMessage()));
    } catch (IOException error) {
      throw new Refusal(setting + ": " + file + ": " + why(error));
    }
  }

  /** Write a document, whole or not at all. */
  static void write(String setting, String file, JsonNode document) {
    Path target = Path.of(file).toAbsolutePath();
    Path temporary = target.resolveSibling(target.getFileName() + ".new");
    try {
      Files.writeString(
          temporary, JSON.writerWithDefaultPrettyPrinter().writeValueAsString(document) + "\n");
      Files.move(temporary, target, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException error) {
      throw new Refusal(setting + ": " + file + ": " + why(error));
    }
  }

  static String why(IOException error) {
    if (error instanceof NoSuchFileException || error instanceof java.io.FileNotFoundException) {
      return "there is no such file, or it cannot be read";
    }
    String message = error.getMessage();
    return message == null ? error.getClass().getSimpleName() : line(message);
  }

  /** The first line of a text. */
  static String line(String text) {
    return text == null ? "" : text.strip().split("\\R", 2)[0];
  }

  static List<String> names(JsonNode object) {
    List<String> found = new ArrayList<>();
    for (Iterator<String> each = object.fieldNames(); each.hasNext(); ) {
      found.add(each.next());
    }
    return found;
  }
}
