package nova.flink;

import org.apache.flink.api.common.functions.MapFunction;

/** Passes on what it receives: a hop of a route. */
public final class Relay<T> implements MapFunction<T, T> {
  private static final long serialVersionUID = 1L;

  @Override
  public T map(T value) {
    return value;
  }
}
