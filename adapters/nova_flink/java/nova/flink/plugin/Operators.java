package nova.flink.plugin;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.Function;
import org.apache.flink.api.common.functions.WrappingFunction;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.streaming.api.operators.AbstractUdfStreamOperator;
import org.apache.flink.streaming.api.operators.SimpleOperatorFactory;
import org.apache.flink.streaming.api.operators.StreamOperatorFactory;

/** What Flink's operators do, as far as their classes tell. */
final class Operators {
  static final String TABLE_JOINS = "org.apache.flink.table.runtime.operators.join.";

  private Operators() {}

  /** What does a node's work, or makes what does; null where Flink runs no operator. */
  static Object of(StreamNode node) {
    StreamOperatorFactory<?> factory = node.getOperatorFactory();
    return factory instanceof SimpleOperatorFactory
        ? ((SimpleOperatorFactory<?>) factory).getOperator()
        : factory;
  }

  /** Name of the class of what does a node's work. */
  static String kind(StreamNode node) {
    Object operator = of(node);
    return operator == null ? "" : operator.getClass().getName();
  }

  static boolean isWindow(Object operator) {
    return operator.getClass().getSimpleName().matches("(Async|Evicting)*WindowOperator(Factory)?");
  }

  static boolean isIntervalJoin(Object operator) {
    return operator.getClass().getSimpleName().matches("(Async)?IntervalJoinOperator");
  }

  /** An operator's function and the functions that it wraps, outermost first. */
  static List<Function> functions(Object operator) {
    List<Function> found = new ArrayList<>();
    Object function =
        operator instanceof AbstractUdfStreamOperator
            ? ((AbstractUdfStreamOperator<?, ?>) operator).getUserFunction()
            : field(operator, "windowFunction");
    while (function instanceof Function) {
      found.add((Function) function);
      function =
          function instanceof WrappingFunction
              ? ((WrappingFunction<?>) function).getWrappedFunction()
              : null;
    }
    return found;
  }

  static boolean hasFunction(Object operator, String pattern) {
    return functions(operator).stream().anyMatch(one -> one.getClass().getName().matches(pattern));
  }

  /** Whether a node with several inputs pairs their tuples (and does not only pass them on). */
  static boolean joins(StreamNode node) {
    Object operator = of(node);
    if (operator == null) {
      return false;
    }
    String name = operator.getClass().getName();
    return isIntervalJoin(operator)
        || (name.startsWith(TABLE_JOINS) && !name.startsWith(TABLE_JOINS + "temporal."))
        || hasFunction(operator, TABLE_JOINS.replace(".", "\\.") + "interval\\..*")
        // Flink makes joins and co-groups of data streams a window over both inputs.
        || (isWindow(operator) && hasFunction(operator, ".*\\$CoGroupWindowFunction"));
  }

  /** The value of a field; null where the class has none of that name. */
  static Object field(Object of, String name) {
    for (Class<?> one = of.getClass(); one != null; one = one.getSuperclass()) {
      try {
        Field found = one.getDeclaredField(name);
        found.setAccessible(true);
        return found.get(of);
      } catch (NoSuchFieldException error) {
        continue;
      } catch (IllegalAccessException | RuntimeException error) {
        return null;
      }
    }
    return null;
  }
}
