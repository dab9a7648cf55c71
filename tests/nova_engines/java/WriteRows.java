import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import nova.engines.query.Row;
import nova.engines.query.RowResults;

/**
 * Writes the results of queries that the standard input has, one file after the other: path, job,
 * names and types of the columns, number of rows, rows, and whether no more will come. Prints a line
 * for each: nothing, or what is wrong.
 */
public final class WriteRows {
  private WriteRows() {}

  /** See the class. */
  public static void main(String[] arguments) throws IOException {
    DataInputStream in = new DataInputStream(System.in);
    while (true) {
      String path;
      try {
        path = text(in);
      } catch (EOFException end) {
        return;
      }
      String job = text(in);
      String[] columns = new String[in.readInt()];
      String[] types = new String[columns.length];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = text(in);
        types[i] = text(in);
      }
      Row[] rows = new Row[in.readInt()];
      for (int i = 0; i < rows.length; i++) {
        rows[i] = Row.read(in);
      }
      boolean end = in.readBoolean();
      String wrong = "";
      try (RowResults file = new RowResults(path, job, columns, types)) {
        for (Row row : rows) {
          file.add(row, 7 * row.sequence);
        }
        if (end) {
          file.complete(70);
          file.finish();
        }
      } catch (IOException | RuntimeException error) {
        wrong = error.toString();
      }
      System.out.println(wrong.replace('\n', ' '));
    }
  }

  private static String text(DataInputStream in) throws IOException {
    byte[] bytes = new byte[in.readInt()];
    in.readFully(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
