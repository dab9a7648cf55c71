package nova.flink.plugin;

/** A job that cannot be placed, in a line for people. */
public final class Refusal extends RuntimeException {
  private static final long serialVersionUID = 1L;

  Refusal(String message) {
    // Where in Nova it was found out helps nobody.
    super(message, null, false, false);
  }
}
