package nova.flink.plugin;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.runtime.metrics.util.MetricUtils;

/** How nodes and operators are called; nodes as in {@code nova_flink.names}. */
final class Names {
  private static final Pattern ODD = Pattern.compile("[^A-Za-z0-9-]");
  private static final Pattern NODE = Pattern.compile("nova\\.node\\s*[=:]\\s*([^\\s\\]\\),;]+)");
  private static final String RESOURCE = "node-";
  private static final Pattern MARK = Pattern.compile("\\[nova id=\\S+? at=([^\\]\\s]+)\\]");
  private static final Pattern CODE = Pattern.compile("_([0-9a-f]+)_");
  private static final Pattern BRACKETED = Pattern.compile("[\\[(]\\s*[\\])]");
  private static final Pattern COUNTED = Pattern.compile("\\[\\d+\\]");
  private static final Pattern WORD = Pattern.compile("[\\w.-]+");
  private static final Pattern KIND =
      Pattern.compile("^(Source|Sink): |: (Writer|Committer|Global Committer)$");
  private static final int LONGEST = 40;
  // As in Flink's `MetricQueryService`.
  private static final Pattern REPLACED = Pattern.compile("[ .:,]");

  private Names() {}

  private static String sanitised(String node) {
    Matcher found = ODD.matcher(node);
    StringBuilder result = new StringBuilder();
    while (found.find()) {
      String code = Integer.toHexString(found.group().codePointAt(0));
      found.appendReplacement(result, "_" + code + "_");
    }
    return found.appendTail(result).toString();
  }

  static String resource(String node) {
    return RESOURCE + sanitised(node);
  }

  static boolean isNode(String resource) {
    return resource.startsWith(RESOURCE);
  }

  /** Nodes of the operators in a description that {@code Placing.describe} wrote. */
  static Set<String> marked(String description) {
    Set<String> nodes = new LinkedHashSet<>();
    for (Matcher mark = MARK.matcher(description); mark.find(); ) {
      nodes.add(CODE.matcher(mark.group(1)).replaceAll(Names::character));
    }
    return nodes;
  }

  private static String character(MatchResult code) {
    return Matcher.quoteReplacement(Character.toString(Integer.parseInt(code.group(1), 16)));
  }

  static String group(String node) {
    return "at-" + sanitised(node);
  }

  /** The node that an operator's name asks for with {@code nova.node=NODE}; null without. */
  static String annotated(String name) {
    Matcher found = NODE.matcher(name);
    return found.find() ? found.group(1) : null;
  }

  /** A name without what Flink and Nova's annotation add. */
  static String plain(String name) {
    String without = NODE.matcher(name).replaceAll("");
    without = BRACKETED.matcher(without).replaceAll("");
    without = COUNTED.matcher(without).replaceAll("");
    return KIND.matcher(without.trim()).replaceAll("").trim();
  }

  /** An id of letters, digits and {@code -}. */
  static String slug(String name) {
    String made = plain(name).toLowerCase().replaceAll("[^a-z0-9]+", "-");
    made = made.replaceAll("^-+|-+$", "");
    made = made.length() > LONGEST ? made.substring(0, LONGEST).replaceAll("-+$", "") : made;
    return made.isEmpty() ? "operator" : made;
  }

  /** What Flink's REST interface calls the metrics of an operator. */
  static String metric(String name) {
    return REPLACED.matcher(MetricUtils.truncateOperatorName(name)).replaceAll("_");
  }

  /** A name as SQL may have to write it: {@code pressure-1} is a table {@code pressure_1}. */
  private static String folded(String name) {
    return name.replaceAll("\\W", "_").toLowerCase();
  }

  /** Whether an operator's name is, or has as a word, what somebody calls it. */
  static boolean called(String name, String by) {
    String wanted = folded(by);
    if (folded(plain(name)).equals(wanted) || folded(name).equals(wanted)) {
      return true;
    }
    List<String> words = new ArrayList<>();
    Matcher found = WORD.matcher(name);
    while (found.find()) {
      String word = found.group();
      words.add(folded(word));
      // Of a table with its catalog and database.
      words.add(folded(word.substring(word.lastIndexOf('.') + 1)));
    }
    return words.contains(wanted);
  }
}
