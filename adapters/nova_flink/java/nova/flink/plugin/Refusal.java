package nova.flink.plugin;

/**
 * A job that cannot be placed, in a line for people.
 *
 * <p>As an error it passes through the table API and through programs that wrap exceptions, and
 * Flink's client prints it as it is.
 */
public final class Refusal extends Error {
  private static final long serialVersionUID = 1L;

  Refusal(String message) {
    // Where in Nova it was found out helps nobody.
    super(message, null, false, false);
  }

  @Override
  public String toString() {
    return "nova: " + getMessage();
  }
}
