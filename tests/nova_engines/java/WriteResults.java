import nova.engines.PairResults;

/** Writes results of pairs as a sink does: PATH JOB COUNT, and "end" where no more will come. */
public final class WriteResults {
  private WriteResults() {}

  /** See the class. */
  public static void main(String[] arguments) throws Exception {
    PairResults file = new PairResults(arguments[0], arguments[1]);
    for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
      file.add(number, 1, 2, 3, 4L, 5L, 6L, 7L, 8L, 9L, 1.5, -2.5);
    }
    if (arguments.length > 3) {
      file.finish();
    }
    file.close();
  }
}
