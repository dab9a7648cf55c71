package nova.storm;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import nova.engines.Orders;
import org.apache.storm.task.TopologyContext;

/** What parts of a topology under a controller have to know of it. */
public final class Control {
  /** Of a topology's configuration: directory of orders on hosts; absent without a controller. */
  private static final String DIRECTORY = "nova.control";

  private Control() {}

  /** What a source is told; null where there is no controller. */
  public static Orders orders(Map<String, Object> conf, TopologyContext context, int source) {
    Object directory = conf.get(DIRECTORY);
    return directory == null ? null : new Orders((String) directory, name(context), source);
  }

  /**
   * Whether a part may work; always without a controller. Storm starts a part that has ended again,
   * without the tuples that it held, and results would be missing in windows that count as complete.
   * So it must not go on; a file on its host says so (DIRECTORY/TOPOLOGY.lost), and the controller
   * puts another topology in the place of this one.
   */
  public static boolean first(Map<String, Object> conf, TopologyContext context) {
    Object directory = conf.get(DIRECTORY);
    if (directory == null) {
      return true;
    }
    String name = name(context);
    Path started = Path.of((String) directory, name, "started." + context.getThisTaskId());
    try {
      Files.createDirectories(started.getParent());
      try {
        Files.createFile(started);
        return true;
      } catch (FileAlreadyExistsException again) {
        Files.writeString(Path.of((String) directory, name + ".lost"), name + " lost\n");
        return false;
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Of the topology: its id without the number and time that Storm adds. */
  private static String name(TopologyContext context) {
    return context.getStormId().replaceFirst("-[0-9]+-[0-9]+$", "");
  }
}
