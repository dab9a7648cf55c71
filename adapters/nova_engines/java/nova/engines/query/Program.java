package nova.engines.query;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;

/**
 * An expression in postfix order: {@code c:N} is column N, {@code i:}, {@code f:} and {@code t:} are
 * constants, everything else is applied to what stands before it. Integers that do not fit into 64
 * bits end the job.
 */
public final class Program implements Serializable {
  private static final long serialVersionUID = 1L;

  private final String[] tokens;
  private transient Node root;

  public Program(String[] tokens) {
    this.tokens = tokens;
  }

  /** Whether there is nothing to compute. */
  public boolean empty() {
    return tokens.length == 0;
  }

  /** Long, Double, String or Boolean. */
  public Object of(Object[] fields) {
    if (root == null) {
      root = compile();
    }
    return root.of(fields);
  }

  /** Whether a condition holds. */
  public boolean holds(Object[] fields) {
    return (Boolean) of(fields);
  }

  private interface Node {
    Object of(Object[] fields);
  }

  private Node compile() {
    Deque<Node> stack = new ArrayDeque<>();
    for (String token : tokens) {
      stack.push(node(token, stack));
    }
    if (stack.size() != 1) {
      throw new IllegalStateException("no expression: " + String.join(" ", tokens));
    }
    return stack.pop();
  }

  private static Node node(String token, Deque<Node> stack) {
    if (token.length() > 1 && token.charAt(1) == ':') {
      String rest = token.substring(2);
      switch (token.charAt(0)) {
        case 'c':
          int column = Integer.parseInt(rest);
          return fields -> fields[column];
        case 'i':
          Long whole = Long.valueOf(rest);
          return fields -> whole;
        case 'f':
          Double real = Double.valueOf(rest);
          return fields -> real;
        default:
          return fields -> rest;
      }
    }
    Node right = stack.pop();
    switch (token) {
      case "NOT":
        return fields -> !(Boolean) right.of(fields);
      case "negative":
        return fields -> negative(right.of(fields));
      case "abs":
        return fields -> {
          Object value = right.of(fields);
          boolean below = value instanceof Long ? (Long) value < 0 : (Double) value < 0;
          return below ? negative(value) : value;
        };
      default:
        return binary(token, stack.pop(), right);
    }
  }

  private static Node binary(String token, Node left, Node right) {
    switch (token) {
      case "AND":
        return fields -> (Boolean) left.of(fields) && (Boolean) right.of(fields);
      case "OR":
        return fields -> (Boolean) left.of(fields) || (Boolean) right.of(fields);
      case "=":
        return fields -> order(left.of(fields), right.of(fields)) == 0;
      case "<>":
        return fields -> order(left.of(fields), right.of(fields)) != 0;
      case "<":
        return fields -> order(left.of(fields), right.of(fields)) < 0;
      case "<=":
        return fields -> order(left.of(fields), right.of(fields)) <= 0;
      case ">":
        return fields -> order(left.of(fields), right.of(fields)) > 0;
      case ">=":
        return fields -> order(left.of(fields), right.of(fields)) >= 0;
      case "+":
      case "-":
      case "*":
      case "/":
        char sign = token.charAt(0);
        return fields -> calculate(sign, left.of(fields), right.of(fields));
      default:
        throw new IllegalStateException("unknown operation " + token);
    }
  }

  private static Object negative(Object value) {
    return value instanceof Long ? (Object) Math.negateExact((Long) value) : (Object) (-(Double) value);
  }

  private static Object calculate(char sign, Object one, Object other) {
    if (sign != '/' && one instanceof Long && other instanceof Long) {
      long a = (Long) one;
      long b = (Long) other;
      return sign == '+'
          ? Math.addExact(a, b)
          : sign == '-' ? Math.subtractExact(a, b) : Math.multiplyExact(a, b);
    }
    double a = ((Number) one).doubleValue();
    double b = ((Number) other).doubleValue();
    return sign == '+' ? a + b : sign == '-' ? a - b : sign == '*' ? a * b : a / b;
  }

  /** Which of two values comes first; texts by their UTF-8 bytes. */
  static int order(Object one, Object other) {
    if (one instanceof String) {
      return Arrays.compareUnsigned(
          ((String) one).getBytes(StandardCharsets.UTF_8),
          ((String) other).getBytes(StandardCharsets.UTF_8));
    }
    if (one instanceof Long && other instanceof Long) {
      return Long.compare((Long) one, (Long) other);
    }
    double a = ((Number) one).doubleValue();
    double b = ((Number) other).doubleValue();
    return a < b ? -1 : a > b ? 1 : 0;
  }
}
