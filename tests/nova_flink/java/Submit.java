import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.apache.flink.client.cli.CliFrontend;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.table.client.SqlClient;

/**
 * What `flink ARGUMENT...` and `sql-client.sh ARGUMENT...` do, many times in one process.
 *
 * <p>Every file given has a line per word, the first of which is flink or sql-client; what the
 * command says goes to FILE.out, and its exit code to the first line of that.
 */
public final class Submit {
  public static void main(String[] files) throws Exception {
    PrintStream out = System.out;
    PrintStream err = System.err;
    for (String file : files) {
      List<String> words = Files.readAllLines(Path.of(file));
      String[] arguments = words.subList(1, words.size()).toArray(new String[0]);
      ByteArrayOutputStream said = new ByteArrayOutputStream();
      PrintStream caught = new PrintStream(said, true);
      System.setOut(caught);
      System.setErr(caught);
      int code = 0;
      try {
        if (words.get(0).equals("flink")) {
          Configuration configuration = GlobalConfiguration.loadConfiguration();
          CliFrontend client =
              new CliFrontend(
                  configuration,
                  CliFrontend.loadCustomCommandLines(
                      configuration, System.getenv("FLINK_CONF_DIR")));
          code = client.parseAndRun(arguments);
        } else {
          SqlClient.main(arguments);
        }
      } catch (Throwable error) {
        error.printStackTrace(caught);
        code = 1;
      }
      System.setOut(out);
      System.setErr(err);
      Path result = Path.of(file + ".new");
      Files.writeString(result, code + "\n" + said);
      Files.move(result, Path.of(file + ".out"));
    }
    System.exit(0);
  }
}
