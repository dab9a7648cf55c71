import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.StringJoiner;
import nova.engines.EventClock;
import nova.engines.Orders;
import nova.engines.query.Replay;

/**
 * A source of readings as engines drive it, at the times that the standard input has, in us since
 * the epoch. Prints a line for each: the readings' numbers and event times, the watermark, and
 * whether it has ended.
 */
public final class RunReplay {
  private RunReplay() {}

  /** File of readings, first event time, start, speed, last event time, directory of orders. */
  public static void main(String[] arguments) throws IOException {
    EventClock clock =
        new EventClock(
            Long.parseLong(arguments[1]),
            Long.parseLong(arguments[2]),
            Double.parseDouble(arguments[3]));
    Orders orders = arguments.length < 6 ? null : new Orders(arguments[5], "job", 3);
    Replay replay =
        new Replay(
            Files.readAllBytes(Path.of(arguments[0])),
            new String[] {"int", "text"},
            clock,
            100,
            orders,
            Long.parseLong(arguments[4]));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      long nowUs = Long.parseLong(line);
      StringJoiner told = new StringJoiner(" ");
      if (replay.begun(nowUs)) {
        while (replay.waitUs(nowUs) <= 0) {
          var row = replay.next(nowUs);
          told.add(row.sequence + "@" + row.timeMs);
        }
        if (replay.ended(nowUs)) {
          told.add("end");
        } else {
          told.add("mark=" + replay.mark(nowUs));
        }
      } else {
        told.add("waits");
      }
      System.out.println(told);
    }
  }
}
